"""The one table of configuration keys: the check and the reference page are made from it."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from config.settings import ApiSettings
from core.clouds import CLOUDS
from core.containers import MOUNTS_WORDS, NETWORKS, ContainerRules, are_mounts
from core.cost import TenantBudget
from core.health import HealthRules
from core.job import Budgets
from core.names import Names
from core.queueing import QueuePolicy, QueueRule
from core.retention import RetentionRules
from core.sandbox import BOUNDS, SandboxRules
from core.supply import CapacityPolicy
from core.timers import Timers

REQUIRED: Final = object()
WILD: Final = "*"
VM_MAX_HIGHEST = 10_000
"""One project holds about 10,000 control subscriptions, one for each VM."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of value: how it is called, whether a value is one, how the environment spells it."""

    expected: str
    good: Callable[[object], bool]
    from_text: Callable[[str], object] = str


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `*` in the path stands for any name, described by `names` of the section."""

    path: str
    kind: ValueType
    default: object
    doc: str
    secret: bool = False
    cloud: bool = False
    """Only a cloud's adapter reads it, once, at the start; at the top of the document."""
    alias: str = ""
    """A variable that others also use for this, e.g. DATABASE_URL."""

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def variable(self) -> str:
        """The environment variable that overrides it; empty for keys under a `*`."""
        return "" if WILD in self.path else "ZEN_" + self.path.upper().replace(".", "__")


# --- kinds ------------------------------------------------------------------------------


def text(expected: str, pattern: str) -> ValueType:
    """Text that matches the whole pattern."""
    rule = re.compile(pattern)
    return ValueType(expected, lambda v: isinstance(v, str) and rule.fullmatch(v) is not None)


def texts(expected: str, pattern: str) -> ValueType:
    """A list of texts that match the whole pattern; the environment puts commas between them."""
    rule = re.compile(pattern)

    def good(value: object) -> bool:
        return isinstance(value, list) and all(
            isinstance(v, str) and rule.fullmatch(v) for v in value
        )

    return ValueType(expected, good, lambda t: [word for word in t.split(",") if word])


def whole(low: int, high: int) -> ValueType:
    """A whole number within bounds; true and false are not numbers."""

    def good(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return ValueType(f"a whole number from {low} to {high}", good, _number_of(int))


def number(high: float, unit: str, *, above_zero: bool) -> ValueType:
    """A finite number from 0 to `high`, or above 0."""

    def good(value: object) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return math.isfinite(value) and 0 <= value <= high and not (above_zero and value == 0)

    low = "above 0, at most" if above_zero else "from 0 to"
    return ValueType(f"a number of {unit} {low} {high:,.0f}", good, _number_of(float))


def choice(*options: str) -> ValueType:
    """One of a few words."""
    return ValueType("one of " + ", ".join(options), lambda v: isinstance(v, str) and v in options)


def optional(kind: ValueType) -> ValueType:
    """The same, or nothing at all."""
    return ValueType(
        f"{kind.expected}, or null",
        lambda v: v is None or kind.good(v),
        lambda t: None if t == "" else kind.from_text(t),
    )


def _number_of(convert: Callable[[str], object]) -> Callable[[str], object]:
    def read(word: str) -> object:
        try:
            return convert(word)
        except ValueError:
            return word  # the check refuses it and shows what came

    return read


def _flag_of(word: str) -> object:
    return {"true": True, "false": False}.get(word.lower(), word)


def _zone_list(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(v, str) and re.fullmatch(_ZONE_WORD, v) for v in value)
    )


def _is_date(value: object) -> bool:
    if isinstance(value, str):
        try:
            datetime.date.fromisoformat(value)
        except ValueError:
            return False
        return True
    return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)


_ZONE_WORD = r"[a-z]|[a-z]+-[a-z]+[0-9]+-[a-z]"


def _is_tls(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"cert", "key"}
        and all(isinstance(path, str) and path for path in value.values())
    )


def _is_floor_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


FLOORS = ValueType(
    "a list of floors, each with days, from, to, timezone and vm_min", _is_floor_list
)
MOUNTS = ValueType(MOUNTS_WORDS, are_mounts, lambda t: [word for word in t.split(",") if word])
ORIGINS = texts(
    'a list of origins, e.g. [https://dash.example.org], or ["*"]', r"\*|https?://[^\s/,]+"
)
HOSTS = texts(
    "a list of host names, e.g. [zen.example.org, '*.zen.internal']",
    r"(\*\.)?[^\s/:*,]+|[0-9a-f:]+",
)
TLS = ValueType(
    "{cert: /path/of/cert.pem, key: /path/of/key.pem}",
    _is_tls,
    lambda t: dict(zip(("cert", "key"), t.split(","), strict=False)),
)
FLAG = ValueType("true or false", lambda v: isinstance(v, bool), _flag_of)
ZONES = ValueType(
    "a list of zones, each a letter or a full name, e.g. [a, us-central1-b]", _zone_list
)
DATE = ValueType("a date, e.g. 2026-08-21", _is_date)
SECONDS = number(366 * 86400, "seconds", above_zero=True)
FLEX_WAIT = number(7 * 86400, "seconds", above_zero=True)
DAYS = number(3650, "days", above_zero=True)
NODE = text("unix: and the absolute path of a socket", r"unix:/[^\x00-\x1f]{1,4095}")
PRICE = number(10_000, "USD per hour", above_zero=False)
BUDGET = number(100_000_000, "USD", above_zero=False)
PART = ValueType(
    "a part above 0, at most 1, e.g. 0.8",
    lambda v: isinstance(v, int | float) and not isinstance(v, bool) and 0 < v <= 1,
)
PROJECT = text(
    "a Google project id: 6 to 30 small letters, digits and -, beginning with a letter",
    r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]",
)
PREFIX = text(
    "1 to 40 small letters, digits and -, beginning with a letter, not ending with -",
    r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?",
)
HOST_PORT = text("host:port, e.g. 127.0.0.1:8085", r"[^\s:/]+:[0-9]{1,5}")
URL = text("a URL, e.g. http://127.0.0.1:8090", r"https?://[^\s/]+(/\S*)?")
POSTGRES = text("a URL, e.g. postgresql://user@host:5432/zen", r"postgres(ql)?://\S*")
STORE = text("file:///directory or gs://bucket/prefix", r"file:///\S*|gs://[a-z0-9]\S*")
HOST = text("a host name or an address", r"[^\s/]+")

# --- names that people choose, by the path of what they name ----------------------------

CLUSTER_NAME = text(
    "<gpus>x<gpu type>, e.g. 4xa100-40gb, or 0xcpu",
    r"(?:[1-9][0-9]{0,2}x[a-z0-9][a-z0-9-]{0,30}|0xcpu(?:-[a-z0-9-]{1,27})?)",
)
REGION_NAME = text("a region, e.g. us-central1", r"[a-z]+-[a-z]+[0-9]+")
GPU_NAME = text("a GPU type, e.g. a100-40gb", r"[a-z0-9][a-z0-9-]{0,30}")
MACHINE_NAME = text("a machine type, e.g. a2-highgpu-1g", r"[a-z][a-z0-9-]{0,62}")

TENANT_NAME = text(
    "a tenant: 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
)

NAMES: Final[dict[str, ValueType]] = {
    "gpus.*": GPU_NAME,
    "gpus.*.zones.*": REGION_NAME,
    "machines.*": MACHINE_NAME,
    "prices.gpus.*": GPU_NAME,
    "prices.gpus.*.*": REGION_NAME,
    "clusters.*": CLUSTER_NAME,
    "clusters.*.regions.*": REGION_NAME,
    "tenants.*": TENANT_NAME,
}

SECTIONS: Final[dict[str, str]] = {
    "": "Who we are and whom we talk to",
    "api": "The REST API",
    "timers": "Every span of time a decision depends on, in seconds",
    "capacity": "How eagerly VMs are searched for, and what waiting is worth",
    "queue": "How tenants share, and how jobs age",
    "budgets": "How often each kind of misfortune is forgiven a job",
    "health": "When a GPU or a VM is left alone",
    "retention": "How long what is over is kept, in days",
    "containers": "What every container of a job with an image is given; workers read it at boot",
    "sandbox": "What a job may use of its VM; workers read it at boot",
    "gpus": "The catalogue of GPUs and the zones that have them",
    "machines": "Machine types, and what the host costs without its GPUs",
    "prices": "What a GPU costs where",
    "clusters": "What we run: one kind of machine over several regions, under one limit",
    "submit": "What a submission must be asked before it is taken",
    "tenants": "Who may submit, and what tenants may spend by the UTC calendar; one that is not "
    "named has no limit",
}

_API = ApiSettings()
_BUDGETS = Budgets()

_GENERAL: Sequence[Key] = (
    Key("project", PROJECT, REQUIRED, "The Google Cloud project that holds groups and topics."),
    Key(
        "prefix",
        PREFIX,
        Names().prefix,
        "Begins the name of every group, VM, template, topic and subscription.",
    ),
    Key(
        "database_url",
        POSTGRES,
        "postgresql://127.0.0.1:5432/zen",
        "PostgreSQL, the one truth.",
        secret=True,
        alias="DATABASE_URL",
    ),
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
    Key("log_level", choice("debug", "info", "warning", "error"), "info", "What is logged."),
    Key(
        "api.host",
        HOST,
        _API.host,
        "The address the API listens on. One that is not loopback needs `api.tls`, or "
        "`api.behind_proxy` where a proxy ends TLS.",
    ),
    Key("api.port", whole(0, 65535), _API.port, "Its port; 0 takes a free one."),
    Key(
        "api.max_body_bytes",
        whole(1024, 64 * 1024 * 1024),
        _API.max_body_bytes,
        "A larger request is refused.",
    ),
    Key(
        "api.connections_max",
        whole(16, 100_000),
        _API.connections_max,
        "Connections at once. With more, the one that has waited longest without a request is "
        "closed; if all have one, the newest is refused.",
    ),
    Key(
        "api.requests_per_s",
        optional(number(1_000_000, "requests", above_zero=True)),
        _API.requests_per_s,
        "Requests per second of one caller, in the long run; more are answered 429 with "
        "Retry-After. Null: any number.",
    ),
    Key(
        "api.requests_burst",
        whole(1, 10_000_000),
        _API.requests_burst,
        "Requests of one caller at once, after a silence.",
    ),
    Key(
        "api.tls",
        optional(TLS),
        _API.tls,
        "PEM files of a certificate (with its chain) and its private key: the API is served over "
        "HTTPS. In the environment: the two paths with a comma between them.",
    ),
    Key(
        "api.behind_proxy",
        FLAG,
        _API.behind_proxy,
        "A proxy in front of the API ends TLS and appends its client's address to "
        "X-Forwarded-For, which is believed then.",
    ),
    Key(
        "api.cors_origins",
        ORIGINS,
        list(_API.cors_origins),
        "Web pages of these origins may call the API from a browser; `*`: of any. Nobody is asked "
        "who they are, so name origins that you trust.",
    ),
    Key(
        "api.allowed_hosts",
        HOSTS,
        list(_API.allowed_hosts),
        "Names under which clients reach the API, besides `api.host`, loopback and the address "
        "that a connection came to. A request for another host is refused (421): its sender may be "
        "a web page whose DNS name was rebound to this address.",
    ),
    Key(
        "api.metrics_port",
        optional(whole(1, 65535)),
        _API.metrics_port,
        "Prometheus metrics on a port of their own, beside `/metrics` of the API.",
    ),
)

_CONTAINER_KEYS: Sequence[Key] = (
    Key(
        "containers.mounts",
        MOUNTS,
        list(ContainerRules().mounts),
        "Directories of the VM that every container sees: source:target, read-only unless it ends "
        "with :rw. Jobs cannot ask for others.",
    ),
    Key(
        "containers.network",
        choice(*NETWORKS),
        ContainerRules().network,
        "`host`: as processes have it, which gangs need; `bridge`: the runtime's own; `none`.",
    ),
)

_SANDBOX_DOCS: Final[dict[str, str]] = {
    "outputs_max_gb": "What one attempt may leave in its output directory; a job that leaves more "
    "fails with exit code 74, and nothing of it is stored. Holes of sparse files count.",
    "log_max_mb": "The log of one attempt; the job goes on, the rest of its output is dropped.",
    "status_max_mb": "How much of one attempt's status file is read.",
    "pids_max": "Processes and threads of one job, where the agent is root.",
    "uid_first": "Where the agent is root, each job has a user of its own: from this number on.",
    "uid_count": "How many numbers from `uid_first` on are for jobs.",
}


def _sandbox_keys() -> Iterator[Key]:
    for field in dataclasses.fields(SandboxRules):
        kind = whole(*BOUNDS[field.name])
        yield Key(f"sandbox.{field.name}", kind, field.default, _SANDBOX_DOCS[field.name])


_BUDGET_KEYS: Sequence[Key] = (
    Key("budgets.losses", whole(0, 1000), _BUDGETS.losses, "Lost VMs, before the job fails."),
    Key(
        "budgets.preemptions",
        whole(0, 10_000),
        _BUDGETS.preemptions,
        "Spot VMs taken back, before the job fails.",
    ),
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
        "Most VMs over all regions, booting, idle and busy: a promise about money, so it has "
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


def _timer_keys() -> Iterator[Key]:
    for field in dataclasses.fields(Timers):
        assert isinstance(field.default, float), f"timer {field.name} needs a default in seconds"
        yield Key(f"timers.{field.name}", SECONDS, field.default, "")


_CAPACITY_KINDS: Final[dict[str, ValueType]] = {
    "slack": whole(1, 1000),
    "price_band": number(100, "times the price", above_zero=False),
    "search_band": number(100, "times the price", above_zero=False),
    "belief_bar": number(1, "parts of certainty", above_zero=False),
    "waiting_usd_per_gpu_hour": number(10_000, "USD per hour", above_zero=False),
    "typical_run_s": SECONDS,
    "preemption_loss_s": number(366 * 86400, "seconds", above_zero=False),
    "memory_half_life_s": SECONDS,
}


def _capacity_keys() -> Iterator[Key]:
    for field in dataclasses.fields(CapacityPolicy):
        yield Key(f"capacity.{field.name}", _CAPACITY_KINDS[field.name], field.default, "")


_HEALTH_KINDS: Final[dict[str, ValueType]] = {
    "gpu_hot_c": number(200, "degrees Celsius", above_zero=True),
    "failures": whole(0, 1000),
    "failures_within_s": SECONDS,
}


def _health_keys() -> Iterator[Key]:
    for field in dataclasses.fields(HealthRules):
        yield Key(f"health.{field.name}", _HEALTH_KINDS[field.name], field.default, "")


_QUEUE_KINDS: Final[dict[str, ValueType]] = {
    "half_life_s": SECONDS,
    "patience": number(10_000, "times the size of a job", above_zero=True),
    "size_min_s": SECONDS,
    "size_unknown_s": SECONDS,
    "big_first_s": number(1e8, "seconds", above_zero=False),
    "hysteresis": number(1, "parts of a share", above_zero=False),
    "least_run_s": number(7 * 86_400, "seconds", above_zero=False),
    "grow_pause_s": number(86_400, "seconds", above_zero=False),
}


def _queue_keys() -> Iterator[Key]:
    for field in dataclasses.fields(QueuePolicy):
        yield Key(f"queue.{field.name}", _QUEUE_KINDS[field.name], field.default, "")


def _retention_keys() -> Iterator[Key]:
    for field in dataclasses.fields(RetentionRules):
        assert isinstance(field.default, float), f"{field.name} needs a default in days"
        yield Key(f"retention.{field.name}", DAYS, field.default, "")


KEYS: Final[tuple[Key, ...]] = (
    *_GENERAL,
    *_timer_keys(),
    *_capacity_keys(),
    *_queue_keys(),
    *_BUDGET_KEYS,
    *_health_keys(),
    *_retention_keys(),
    *_CONTAINER_KEYS,
    *_sandbox_keys(),
    *_CATALOGUE,
    *_CLUSTER_KEYS,
    *_TENANT_KEYS,
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
