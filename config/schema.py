"""The one table of configuration keys: the check and the reference page are made from it."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from config.access_keys import ACCESS_KEYS, ACCESS_NAMES
from config.database_keys import DATABASE_KEYS
from config.keys import REQUIRED, WILD, Key
from config.settings import ApiSettings, AuditSettings, SecretSettings, WorkerSettings
from config.tenant_keys import TENANT_USE_KEYS
from config.value_types import (
    BUDGET,
    CLUSTER_NAME,
    DATE,
    DAYS,
    FILE_PATH,
    FLAG,
    FLEX_WAIT,
    FLOORS,
    GPU_NAME,
    HOST,
    HOST_PORT,
    HOSTS,
    MACHINE_NAME,
    MOUNTS,
    NODE,
    ORIGINS,
    PART,
    PREFIX,
    PRICE,
    PROJECT,
    REGION_NAME,
    SECONDS,
    SERVICE_ACCOUNT,
    STORE,
    TENANT_NAME,
    TLS,
    TOPIC_NAME,
    URL,
    USER_NAME,
    ZONES,
    ValueType,
    choice,
    number,
    optional,
    whole,
)
from core.clouds import CLOUDS
from core.code_store import CODE_BOUNDS, CodeRules
from core.containers import NETWORKS, USERS, ContainerRules
from core.cost import TenantBudget
from core.health import HealthRules
from core.job import Budgets
from core.names import Names
from core.queueing import QueuePolicy, QueueRule
from core.retention import RetentionRules
from core.sandbox import BOUNDS, SandboxRules
from core.supply import CapacityPolicy
from core.timers import Timers

VM_MAX_HIGHEST = 10_000
"""One project holds about 10,000 control subscriptions, one for each VM."""


NAMES: Final[dict[str, ValueType]] = {
    **ACCESS_NAMES,
    "gpus.*": GPU_NAME,
    "gpus.*.zones.*": REGION_NAME,
    "machines.*": MACHINE_NAME,
    "prices.gpus.*": GPU_NAME,
    "prices.gpus.*.*": REGION_NAME,
    "clusters.*": CLUSTER_NAME,
    "clusters.*.regions.*": REGION_NAME,
    "submit.topics.*": TOPIC_NAME,
    "tenants.*": TENANT_NAME,
}

SECTIONS: Final[dict[str, str]] = {
    "": "Who we are and whom we talk to",
    "api": "The REST API",
    "access": "Who may call, besides the keys and grants in the database",
    "timers": "Every span of time a decision depends on, in seconds",
    "capacity": "How eagerly VMs are searched for, and what waiting is worth",
    "queue": "How tenants share, and how jobs age",
    "budgets": "How often each kind of misfortune is forgiven a job",
    "health": "When a GPU or a VM is left alone",
    "retention": "How long what is over is kept, in days",
    "containers": "What every container of a job with an image is given; workers read it at boot",
    "sandbox": "What a job may use of its VM; workers read it at boot",
    "code": "How much code of jobs is taken",
    "secrets": "How tenants' secrets are kept",
    "workers": "How the scheduler and its workers know each other",
    "audit": "Where the audit log is anchored",
    "gpus": "The catalogue of GPUs and the zones that have them",
    "machines": "Machine types, and what the host costs without its GPUs",
    "prices": "What a GPU costs where",
    "clusters": "What we run: one kind of machine over several regions, under one limit",
    "submit": "What a submission must be asked before it is accepted",
    "tenants": "Who may submit, and what tenants may spend by the UTC calendar; one that is not "
    "named has no limit",
}

_GENERAL: Sequence[Key] = (
    Key("project", PROJECT, REQUIRED, "The Google Cloud project that holds groups and topics."),
    Key(
        "prefix",
        PREFIX,
        Names().prefix,
        "Begins the name of every group, VM, template, topic and subscription.",
    ),
    *DATABASE_KEYS,
    Key(
        "pubsub_host",
        optional(HOST_PORT),
        None,
        "An emulator or the local bus instead of Google Pub/Sub.",
        alias="PUBSUB_EMULATOR_HOST",
    ),
    Key(
        "compute_url",
        optional(URL),
        None,
        "An endpoint instead of Google Compute Engine's.",
        cloud=True,
    ),
    Key(
        "identity_certs_url",
        optional(URL),
        None,
        "Where the certificates are that prove the identity tokens of VMs. Null: Google's, or "
        "those of `compute_url` where that is a pretend cloud (http://).",
        cloud=True,
    ),
    Key("store_url", STORE, "file:///var/lib/zen/store", "Where logs and artifacts are kept."),
    Key(
        "v1_results_url",
        optional(STORE),
        None,
        "Where pipeline-zen's workflows store their results, e.g. "
        "gs://lum-prod-pipeline-zen-jobs-{multi_region}. <user>/<job>/job-meta.json there becomes "
        "`artifacts` on v1 routes. {region} and {multi_region} (us, europe, asia, me-west1) are "
        "filled in.",
    ),
    Key(
        "calls_per_minute",
        whole(1, 100_000),
        600,
        "Compute calls per minute for the whole project; Google refuses more than its quota.",
        cloud=True,
    ),
    Key(
        "queue_limit",
        whole(1, 100_000),
        1000,
        "Queued jobs that one scheduling cycle looks at, in order.",
    ),
    Key(
        "tenants_strict",
        optional(FLAG),
        None,
        "The older name of `tenants.create_on_submit`, with the opposite meaning; null: not said.",
    ),
    Key(
        "single_tenant",
        FLAG,
        False,
        "Only tenant `default` may submit: where all jobs run as one Unix user, tenants would read "
        "each other's files. `zen up` sets it where it is not root.",
    ),
    Key("log_level", choice("debug", "info", "warning", "error"), "info", "What is logged."),
)

_CATALOGUE: Sequence[Key] = (
    Key("gpus.*.memory_gb", whole(1, 4096), REQUIRED, "Memory of one GPU."),
    Key("gpus.*.zones.*", ZONES, REQUIRED, "The zones of that region that have this GPU."),
    Key("machines.*.cpus", whole(1, 4096), REQUIRED, "vCPUs."),
    Key("machines.*.memory_gb", whole(1, 65536), REQUIRED, "Memory of the host."),
    Key(
        "machines.*.gpu_type",
        optional(GPU_NAME),
        None,
        "The GPU that is built in; null for machines that take what is attached (n1).",
    ),
    Key("machines.*.gpus", optional(whole(1, 64)), None, "How many of them are built in."),
    Key("machines.*.usd_per_hour", PRICE, REQUIRED, "The host, on demand, without GPUs."),
    Key("machines.*.spot_usd_per_hour", PRICE, REQUIRED, "The host as spot, without GPUs."),
    Key("prices.as_of", DATE, REQUIRED, "The day these prices were read."),
    Key("prices.gpus.*.*.usd_per_hour", PRICE, REQUIRED, "One GPU there, on demand."),
    Key("prices.gpus.*.*.spot_usd_per_hour", PRICE, REQUIRED, "One GPU there, as spot."),
)

_CLUSTER_KEYS: Sequence[Key] = (
    Key("clusters.*.machine_type", MACHINE_NAME, REQUIRED, "A machine of `machines`."),
    Key(
        "clusters.*.vm_max",
        whole(0, VM_MAX_HIGHEST),
        REQUIRED,
        "Most VMs over all regions, booting, idle and busy: a guarantee about money, so it has "
        "no default.",
    ),
    Key("clusters.*.vm_min", whole(0, VM_MAX_HIGHEST), 0, "VMs kept warm without work."),
    Key(
        "clusters.*.spot",
        FLAG,
        False,
        "Spot VMs: cheaper, and Google may take them back. Beside a standard cluster of the same "
        "GPUs the name ends with -spot (1xl4, 1xl4-spot); jobs with a deadline move over in time.",
    ),
    Key(
        "clusters.*.worker",
        choice("v1", "v2"),
        "v2",
        "What runs on the VMs: v2 is our agent, v1 are workers of pipeline-zen, which take one job "
        "by themselves and delete their VM (docs/internals/compatibility.md).",
    ),
    Key(
        "clusters.*.trusted_tenants_only",
        FLAG,
        False,
        "Must be true for `worker: v1`: such workers cannot prove who they are, so every process "
        "that may use the bus (on VMs, and in jobs of v1 workers) can speak for them, read their "
        "jobs' start messages and end their jobs (docs/operator/secure.md).",
    ),
    Key(
        "clusters.*.pool",
        choice(*CLOUDS),
        "mig",
        "`static`: fixed machines, no managed instance group; each region is one machine (`node`).",
    ),
    Key(
        "clusters.*.drain",
        FLAG,
        False,
        "No new jobs, no new VMs: what runs may end, what idles is given back. The way to empty a "
        "cluster before it is removed.",
    ),
    Key(
        "clusters.*.queue",
        choice(*(str(rule) for rule in QueueRule)),
        str(QueueRule.FAIR),
        "Who goes first: `fair` (class, then the tenants' shares, then who is due), `fifo` "
        "(arrival alone), `priority` (the number alone: a low one may wait for ever).",
    ),
    Key(
        "clusters.*.share",
        FLAG,
        False,
        "Several jobs on one VM, each with GPUs of its own (CUDA_VISIBLE_DEVICES), as long as the "
        "CPU cores and the memory that they ask for suffice. false: a job has its VM to itself.",
    ),
    Key(
        "clusters.*.share_between_tenants",
        FLAG,
        False,
        "Where jobs share VMs, those of different tenants may too. false: while a VM has jobs, it "
        "takes only jobs of their tenant.",
    ),
    Key(
        "clusters.*.idle_timeout_s",
        optional(SECONDS),
        None,
        "A VM without work is given back after exactly this long; null: when keeping it warm is "
        "not worth its price, at the latest after timers.idle_timeout_s.",
    ),
    Key(
        "clusters.*.flex_start_wait_s",
        optional(FLEX_WAIT),
        None,
        "The VMs of a gang are asked for by one resize request, all or none, which waits in "
        "Google's queue (flex start) for at most this long before the gang looks in another "
        "region; null: one by one. The groups' template needs the provisioning model FLEX_START, "
        "see docs/user/multi-vm.md.",
    ),
    Key(
        "clusters.*.floors",
        FLOORS,
        [],
        "More VMs kept warm at some hours: a list of floors, see the end of this page.",
    ),
    Key(
        "clusters.*.regions.*.zones",
        optional(ZONES),
        None,
        "Zones of the group; null: all that have the GPU, by `gpus`.",
    ),
    Key(
        "clusters.*.regions.*.vm_max",
        optional(whole(0, VM_MAX_HIGHEST)),
        None,
        "Most VMs in this region, within the cluster's own limit.",
    ),
    Key(
        "clusters.*.regions.*.usd_per_hour",
        optional(PRICE),
        None,
        "The whole VM, on demand; null: host + GPUs by `machines` and `prices`.",
    ),
    Key("clusters.*.regions.*.spot_usd_per_hour", optional(PRICE), None, "The same, as spot."),
    Key(
        "clusters.*.regions.*.node",
        optional(NODE),
        None,
        "Of a static pool: the socket of the machine's node service; `zen node` writes it.",
    ),
)


_TENANT_KEYS: Sequence[Key] = (
    Key(
        "submit.confirm_above_usd_per_hour",
        optional(BUDGET),
        None,
        "A submission that costs more per hour (all its VMs, in the dearest region it allows) must "
        "be confirmed, see docs/user/costs.md; null: none is. A tenant may have its own.",
    ),
    Key(
        "submit.topics.*.tenant",
        TENANT_NAME,
        REQUIRED,
        "Every message on this topic is a submission of this tenant, by any publisher: see to "
        "it on the bus who may. A message on a topic that is not bound needs an API key, in its "
        "attribute `zen-key`. <prefix>-submit is read always, other topics if they are named here.",
    ),
    Key(
        "submit.topics.*.user",
        optional(USER_NAME),
        None,
        "Whose jobs they are; null: each message may name any user of the tenant.",
    ),
    Key(
        "tenants.create_on_submit",
        optional(FLAG),
        None,
        "A submission of a tenant that nobody has set up (`zen tenants set`) makes it a tenant "
        "without limits; false, or null: it is refused. The tenant `default` always exists.",
    ),
    Key(
        "tenants.*.usd_per_day",
        optional(BUDGET),
        None,
        "When its jobs have cost this much since 00:00 UTC, no more of them are started; what "
        "runs goes on.",
    ),
    Key(
        "tenants.*.usd_per_month",
        optional(BUDGET),
        None,
        "The same since the first of the month.",
    ),
    Key(
        "tenants.*.warn_at",
        PART,
        TenantBudget().warn_at,
        "An alert is raised when this part of a budget is spent.",
    ),
)


DECLARED: Final[dict[str, tuple[type, dict[str, ValueType]]]] = {
    "api": (
        ApiSettings,
        {
            "host": HOST,
            "port": whole(0, 65535),
            "max_body_bytes": whole(1024, 64 * 1024 * 1024),
            "cors_origins": ORIGINS,
            "connections_max": whole(16, 100_000),
            "requests_per_s": optional(number(1_000_000, "requests", above_zero=True)),
            "requests_burst": whole(1, 10_000_000),
            "tls": optional(TLS),
            "behind_proxy": FLAG,
            "proxy_hops": whole(1, 16),
            "allowed_hosts": HOSTS,
            "metrics_port": optional(whole(1, 65535)),
        },
    ),
    "timers": (Timers, defaultdict(lambda: SECONDS)),
    "capacity": (
        CapacityPolicy,
        {
            "slack": whole(1, 1000),
            "price_band": number(100, "times the price", above_zero=False),
            "search_band": number(100, "times the price", above_zero=False),
            "belief_bar": number(1, "parts of certainty", above_zero=False),
            "waiting_usd_per_gpu_hour": number(10_000, "USD per hour", above_zero=False),
            "typical_run_s": SECONDS,
            "preemption_loss_s": number(366 * 86400, "seconds", above_zero=False),
            "memory_half_life_s": SECONDS,
        },
    ),
    "queue": (
        QueuePolicy,
        {
            "half_life_s": SECONDS,
            "patience": number(10_000, "times the size of a job", above_zero=True),
            "size_min_s": SECONDS,
            "size_unknown_s": SECONDS,
            "big_first_s": number(1e8, "seconds", above_zero=False),
            "hysteresis": number(1, "parts of a share", above_zero=False),
            "least_run_s": number(7 * 86_400, "seconds", above_zero=False),
            "grow_pause_s": number(86_400, "seconds", above_zero=False),
        },
    ),
    "budgets": (Budgets, {"losses": whole(0, 1000), "preemptions": whole(0, 10_000)}),
    "health": (
        HealthRules,
        {
            "gpu_hot_c": number(200, "degrees Celsius", above_zero=True),
            "failures": whole(0, 1000),
            "failures_within_s": SECONDS,
        },
    ),
    "retention": (RetentionRules, defaultdict(lambda: DAYS)),
    "containers": (
        ContainerRules,
        {"mounts": MOUNTS, "network": choice(*NETWORKS), "user": choice(*USERS)},
    ),
    "audit": (AuditSettings, {"anchor_url": optional(STORE), "anchor_every_s": SECONDS}),
    "sandbox": (SandboxRules, {name: whole(*bounds) for name, bounds in BOUNDS.items()}),
    "code": (CodeRules, {name: whole(*bounds) for name, bounds in CODE_BOUNDS.items()}),
    "secrets": (
        SecretSettings,
        {"key_file": optional(FILE_PATH), "manager_url": optional(URL)},
    ),
    "workers": (
        WorkerSettings,
        {
            "key_file": optional(FILE_PATH),
            "service_account": optional(SERVICE_ACCOUNT),
            "store_tokens": FLAG,
        },
    ),
}
"""Section → the class whose fields are its keys, with defaults and meanings, and their types."""


def _declared_keys() -> Iterator[Key]:
    for section, (shape, kinds) in DECLARED.items():
        for field in dataclasses.fields(shape):
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            assert default is not dataclasses.MISSING, f"{section}.{field.name} needs a default"
            yield Key(f"{section}.{field.name}", kinds[field.name], default, "")


KEYS: Final[tuple[Key, ...]] = (
    *_GENERAL,
    *ACCESS_KEYS,
    *_declared_keys(),
    *_CATALOGUE,
    *_CLUSTER_KEYS,
    *_TENANT_KEYS,
    *TENANT_USE_KEYS,
)


@dataclass(frozen=True, slots=True)
class Section:
    """The keys as a tree, for walking along a document."""

    path: str
    children: dict[str, Section | Key]

    @property
    def any_name(self) -> Section | Key | None:
        """What stands under names that people choose, if this section has such names."""
        return self.children.get(WILD)


def tree(keys: Sequence[Key] = KEYS) -> Section:
    """The table of keys as a tree."""
    root = Section("", {})
    for key in keys:
        *sections, last = key.path.split(".")
        at = root
        for word in sections:
            path = f"{at.path}.{word}" if at.path else word
            child = at.children.setdefault(word, Section(path, {}))
            assert isinstance(child, Section), f"{path} is both a key and a section"
            at = child
        assert last not in at.children, f"{key.path} stands twice in the table"
        at.children[last] = key
    return root


TREE: Final[Section] = tree()
