"""The work of a run: who submits what, when, through which door, and who gives it up again. All of
it follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from core.cluster import ClusterSpec
from core.tenants import Quota, Tenant
from sim.virtual.loop import EPOCH

DEADLINE_RUN_S = 3600.0
"""What jobs with a deadline state as their run time."""
GANG_MAX = 3
CHAINED, CHAIN_S = 0.08, 60.0
"""How many of the jobs wait for another one, and how much earlier that one came."""
SWEEP = 3
"""Jobs of an array."""
TENANTS = ("default", "few", "small")
HIGHEST = 5000
"""The cap of a tenant's priorities."""
REPLIES = "answers-to-somebody"
"""A topic for answers to submissions by message."""


@dataclass(frozen=True, slots=True)
class Order:
    """One job that somebody will submit."""

    at: float
    body: Mapping[str, object]
    by_bus: bool
    repeats: int
    stop_at: float | None
    key: str | None = None
    """What makes a repeat one, where the job has no id of its own."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Of the message, if it comes by one."""

    @property
    def job_id(self) -> str:
        """As its owner knows it; of an array, the name of the group."""
        return job_id_of(self.body) or self.key or ""


def job_id_of(body: Mapping[str, object]) -> str:
    """What a submission calls itself, in our words or in those of a manifest."""
    metadata = body.get("metadata")
    named = metadata.get("name") if isinstance(metadata, Mapping) else body.get("job_id")
    return str(named or "")


def accepted_ids(job_id: str, body: Mapping[str, object]) -> list[str]:
    """The jobs that must be there once it was accepted."""
    return [f"{job_id}-{index}" for index in range(SWEEP)] if "array" in body else [job_id]


def make_orders(
    seed: int, count: int, over_s: float, clusters: Sequence[ClusterSpec]
) -> list[Order]:
    """The work of a run, in the order of its arrival."""
    dice = random.Random(f"{seed}/orders")
    bare = [cluster for cluster in clusters if not cluster.gpus]
    clusters = [cluster for cluster in clusters if cluster.gpus]
    orders = []
    gangs, sweeps = count // 12, count // 100
    for number in range(count - gangs - sweeps * (SWEEP + 1)):
        # Half of the work comes in a few bursts: queues must form.
        burst = dice.randrange(3) / 3 * over_s + dice.uniform(0, 30)
        at = burst if dice.random() < 0.5 else dice.uniform(0, over_s)
        orders.append(_order(dice, number, at, clusters))
    orders = _chained(random.Random(f"{seed}/chains"), orders)
    orders += [_rival(dice, order) for order in orders if dice.random() < 0.03]
    orders = _in_other_words(random.Random(f"{seed}/words"), orders)
    orders += [_nonsense(dice, number, over_s) for number in range(count // 15)]
    orders += _gangs(random.Random(f"{seed}/gangs"), gangs, over_s, clusters)
    dice = random.Random(f"{seed}/sweeps")
    for number in range(sweeps):
        orders += _sweep(dice, number, over_s, dice.choice(clusters))
    if bare:
        cpu = random.Random(f"{seed}/cpu")
        orders += [_without_gpus(cpu, number, over_s, bare) for number in range(count // 20)]
    orders.sort(key=lambda order: (order.at, order.job_id))
    return orders


def _without_gpus(
    dice: random.Random, number: int, over_s: float, clusters: Sequence[ClusterSpec]
) -> Order:
    """A job for a VM without GPUs; one in ten is a gang."""
    cluster = dice.choice(clusters)
    body: dict[str, object] = {
        "job_id": f"bare-{number}",
        "command": ["pretend", str(number)],
        "tenant_id": TENANTS[number % len(TENANTS)],
        "gpu_count": 0,
        "retries": dice.choice((0, 0, 1)),
        "stop_grace_s": dice.choice((2, 10)),
    }
    if dice.random() < 0.5:
        body["cluster"] = cluster.name
    if dice.random() < 0.1:
        body["replicas"] = 2
    return _some_time(dice, body, over_s, 150)


def _some_time(
    dice: random.Random, body: Mapping[str, object], over_s: float, given_up_s: float
) -> Order:
    """Within the time, through either door; one in five is given up, after so long on average."""
    at = dice.uniform(0, over_s)
    stop_at = at + dice.expovariate(1 / given_up_s) if dice.random() < 0.2 else None
    return Order(at, body, dice.random() < 0.4, 1, stop_at)


def _chained(dice: random.Random, orders: Sequence[Order]) -> list[Order]:
    """Some wait for the end of one that came long before, most of them for a good one."""
    chained = []
    for order in orders:
        tenant = order.body.get("tenant_id")
        own = [o for o in orders if o.body.get("tenant_id") == tenant and not o.by_bus]
        earlier = [o for o in own if o.at < order.at - CHAIN_S]
        if earlier and not order.by_bus and dice.random() < CHAINED:
            needs = dice.choice(earlier).job_id
            after = [f"{needs}:any" if dice.random() < 0.3 else needs]
            order = replace(order, body={**order.body, "after": after})  # noqa: PLW2901
        chained.append(order)
    return chained


def _rival(dice: random.Random, order: Order) -> Order:
    """Other content under the same id: one of the two is refused, whichever comes later."""
    body = {**order.body, "priority": 1}
    return replace(order, body=body, at=order.at + dice.uniform(0, 60), repeats=1, stop_at=None)


def _in_other_words(dice: random.Random, orders: Sequence[Order]) -> list[Order]:
    """Some say the same in another way: without an id, as a manifest, or want an answer by
    message."""
    told = []
    for order in orders:
        body, way = order.body, dice.random()
        if order.by_bus:
            asks = way < 0.3
            reply = {"reply_topic": dice.choice((REPLIES, REPLIES, "nowhere"))} if asks else {}
            told.append(replace(order, attributes=reply))
        elif way < 0.04 and "after" not in body:
            nameless = {name: value for name, value in body.items() if name != "job_id"}
            told.append(replace(order, body=nameless, key=f"key of {order.job_id}", stop_at=None))
        elif way < 0.08 and body.get("cluster") is not None:
            told.append(replace(order, body=_manifest(body)))
        else:
            told.append(order)
    return told


def _manifest(body: Mapping[str, object]) -> dict[str, object]:
    job = {
        "command": body["command"],
        "cluster": body["cluster"],
        "gpusPerReplica": body["gpu_count"],
        "priority": body["priority"],
        "retries": body["retries"],
        "spot": body.get("spot", False),
    }
    return {
        "apiVersion": "v1alpha1",
        "kind": "UnifiedJob",
        "metadata": {"name": body["job_id"], "namespace": body["tenant_id"]},
        "spec": {"jobSpec": job},
    }


def _nonsense(dice: random.Random, number: int, over_s: float) -> Order:
    """A submission that no door may let in."""
    deep: object = 1
    for _ in range(40):
        deep = [deep]
    small, whole = {"tenant_id": TENANTS[2]}, {"cluster": "8xh100-80gb", "gpu_count": 8}
    wrongs: tuple[dict[str, object], ...] = (
        {"cluster": "9xnone"},
        {"gpu_type": "none"},
        {"gpu_types": ["l4", "none"]},
        {"gpu_count": 9},
        {"regions": ["nowhere1"]},
        {"regions_denied": ["nowhere1"]},
        {"priority": "high", "colour": "blue"},
        {"command": []},
        {"command": ["pre\0tend"]},
        {"workflow_args": {"deep": deep}},
        {"after": ["nobody"]},
        {"cluster": "1xl4", "gpu_type": "v100", "spot": False},
        {"cluster": "1xl4", "max_usd_per_hour": 0.01, "cpu_cores": 1000},
        {**whole, "replicas": 30},
        {**small, **whole, "replicas": 2},
        {**small, "cluster": "1xl4", "priority": HIGHEST + 1},
        {"kind": "UnifiedJob", "metadata": {"name": f"nonsense-{number}"}},
    )
    body = {"job_id": f"nonsense-{number}", "command": ["pretend"], **dice.choice(wrongs)}
    return Order(dice.uniform(0, over_s), body, dice.random() < 0.4, 1, None)


def _order(dice: random.Random, number: int, at: float, clusters: Sequence[ClusterSpec]) -> Order:
    cluster = dice.choices(clusters, [c.vm_max for c in clusters])[0]
    other = dice.choice([c for c in clusters if c.gpu_type != cluster.gpu_type] or clusters)
    ways: tuple[dict[str, object], ...] = (
        {"cluster": cluster.name, "gpu_count": dice.randint(1, cluster.gpus)},
        {"gpu_type": cluster.gpu_type, "gpu_count": cluster.gpus},
        {"gpu_memory_mb": 1000},
        {"gpu_types": [cluster.gpu_type, other.gpu_type], "gpu_count": 1, "allow_larger": True},
    )
    body: dict[str, object] = {
        "job_id": f"job-{number}",
        "command": ["pretend", str(number)],
        "tenant_id": TENANTS[number % len(TENANTS)],
        **dice.choices(ways, (14, 5, 2, 1))[0],
        "priority": dice.choice((100, 500, 500, 2000)),
        "retries": dice.choice((0, 0, 1, 2)),
        "stop_grace_s": dice.choice((2, 10, 30)),
    }
    if body.get("cluster") is not None and cluster.spot:
        body["spot"] = True
    if "gpu_type" in body and cluster.spot:
        # Time enough for spot now, and too little in a while: the run that it states, and some.
        left_s = DEADLINE_RUN_S + dice.uniform(400, 800)
        body |= {"spot": True, "deadline": (EPOCH + timedelta(seconds=at + left_s)).isoformat()}
        body["max_runtime_minutes"] = DEADLINE_RUN_S / 60
    if dice.random() < 0.15:
        body["regions"] = [r.region for r in dice.sample(cluster.regions, 2)]
    elif dice.random() < 0.1:
        denied = dice.choice(cluster.regions)
        dear = max(r.usd_per_hour for r in cluster.regions)
        body |= {"regions_denied": [denied.region], "max_usd_per_hour": dear}
        body |= {"cpu_cores": 1, "memory_mb": 500}
    if dice.random() < 0.08:
        body["max_runtime_minutes"] = dice.choice((0.2, 0.5, 1.0))
    if dice.random() < 0.08:
        body["queue_timeout_s"] = dice.choice((5, 20, 60, 120, 300))
    stop_at = at + dice.expovariate(1 / 150) if dice.random() < 0.2 else None
    repeats = 1 if dice.random() < 0.8 else dice.randint(2, 4)
    return Order(at, body, dice.random() < 0.4, repeats, stop_at)


def _gangs(
    dice: random.Random, count: int, over_s: float, clusters: Sequence[ClusterSpec]
) -> list[Order]:
    """Jobs on several VMs at once."""
    roomy = [cluster for cluster in clusters if cluster.vm_max >= GANG_MAX]
    orders = []
    for number in range(count if roomy else 0):
        cluster = dice.choice(roomy)
        body: dict[str, object] = {
            "job_id": f"gang-{number}",
            "command": ["pretend", str(number)],
            "cluster": cluster.name,
            "gpu_count": cluster.gpus,
            "replicas": _replicas(dice),
            **({"spot": True} if cluster.spot else {}),
            "replace_members": dice.random() < 0.3,
            "retries": dice.choice((0, 0, 1)),
            "stop_grace_s": dice.choice((2, 10)),
        }
        orders.append(_some_time(dice, body, over_s, 200))
    return orders


def _sweep(
    dice: random.Random, number: int, over_s: float, cluster: ClusterSpec
) -> tuple[Order, Order]:
    """An array, and a job that waits for all of it."""
    body: dict[str, object] = {
        "job_id": f"sweep-{number}",
        "command": ["pretend"],
        "cluster": cluster.name,
        **({"spot": True} if cluster.spot else {}),
        "gpu_count": 1,
        "array": f"0-{SWEEP - 1}",
    }
    at = dice.uniform(0, over_s / 2)
    after = {**body, "job_id": f"swept-{number}", "after": [f"sweep-{number}:any"]}
    del after["array"]
    return Order(at, body, False, 2, None), Order(at + CHAIN_S, after, False, 1, None)


def _replicas(dice: random.Random) -> object:
    """Most of them may grow and shrink."""
    if dice.random() < 0.7:
        return {"min": dice.randint(1, GANG_MAX - 1), "max": GANG_MAX}
    return dice.randint(2, GANG_MAX)


def tenants_of(clusters: Sequence[ClusterSpec]) -> list[Tenant]:
    """One without limits, one that may run few jobs at once, one with few GPUs: their quotas bind
    whenever work comes in a burst."""
    largest = max(cluster.gpus for cluster in clusters)
    _, few, small = TENANTS
    return [
        Tenant(few, weight=2.0, may_preempt=False, quota=Quota(jobs=6)),
        Tenant(small, priority_max=HIGHEST, quota=Quota(gpus=largest + 1)),
    ]
