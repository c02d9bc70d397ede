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
from core.job import Budgets
from core.names import Names
from core.retention import RetentionRules
from core.timers import Timers

REQUIRED: Final = object()
WILD: Final = "*"
VM_MAX_HIGHEST = 10_000
"""One project holds about 10,000 control subscriptions, one for each VM."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of value: how it is called, whether a value is one, how the environment spells it."""

    expected: str
    good: Callable[[object], bool]
    from_text: Callable[[str], object] = str


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `*` in the path stands for any name, described by `names` of the section."""

    path: str
    kind: Kind
    default: object
    doc: str
    secret: bool = False
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


def text(expected: str, pattern: str) -> Kind:
    """Text that matches the whole pattern."""
    rule = re.compile(pattern)
    return Kind(expected, lambda v: isinstance(v, str) and rule.fullmatch(v) is not None)


def whole(low: int, high: int) -> Kind:
    """A whole number within bounds; true and false are not numbers."""

    def good(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return Kind(f"a whole number from {low} to {high}", good, _number_of(int))


def number(high: float, unit: str, *, above_zero: bool) -> Kind:
    """A finite number from 0 to `high`, or above 0."""

    def good(value: object) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return math.isfinite(value) and 0 <= value <= high and not (above_zero and value == 0)

    low = "above 0, at most" if above_zero else "from 0 to"
    return Kind(f"a number of {unit} {low} {high:,.0f}", good, _number_of(float))


def choice(*options: str) -> Kind:
    """One of a few words."""
    return Kind("one of " + ", ".join(options), lambda v: isinstance(v, str) and v in options)


def optional(kind: Kind) -> Kind:
    """The same, or nothing at all."""
    return Kind(
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
FLAG = Kind("true or false", lambda v: isinstance(v, bool), _flag_of)
ZONES = Kind("a list of zones, each a letter or a full name, e.g. [a, us-central1-b]", _zone_list)
DATE = Kind("a date, e.g. 2026-08-21", _is_date)
SECONDS = number(366 * 86400, "seconds", above_zero=True)
DAYS = number(3650, "days", above_zero=True)
PRICE = number(10_000, "USD per hour", above_zero=False)
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
    "<gpus>x<gpu type>, e.g. 4xa100-40gb", r"[1-9][0-9]{0,2}x[a-z0-9][a-z0-9-]{0,30}"
)
REGION_NAME = text("a region, e.g. us-central1", r"[a-z]+-[a-z]+[0-9]+")
GPU_NAME = text("a GPU type, e.g. a100-40gb", r"[a-z0-9][a-z0-9-]{0,30}")
MACHINE_NAME = text("a machine type, e.g. a2-highgpu-1g", r"[a-z][a-z0-9-]{0,62}")

NAMES: Final[dict[str, Kind]] = {
    "gpus.*": GPU_NAME,
    "gpus.*.zones.*": REGION_NAME,
    "machines.*": MACHINE_NAME,
    "prices.gpus.*": GPU_NAME,
    "prices.gpus.*.*": REGION_NAME,
    "clusters.*": CLUSTER_NAME,
    "clusters.*.regions.*": REGION_NAME,
}

SECTIONS: Final[dict[str, str]] = {
    "": "Who we are and whom we talk to",
    "api": "The REST API",
    "timers": "Every span of time a decision depends on, in seconds",
    "budgets": "How often each kind of misfortune is forgiven a job",
    "retention": "How long what is over is kept, in days",
    "gpus": "The catalogue of GPUs and the zones that have them",
    "machines": "Machine types, and what the host costs without its GPUs",
    "prices": "What a GPU costs where",
    "clusters": "What we run: one kind of machine over several regions, under one limit",
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
    Key("compute_url", optional(URL), None, "An endpoint instead of Google Compute Engine's."),
    Key("store_url", STORE, "file:///var/lib/zen/store", "Where logs and artifacts are kept."),
    Key(
        "calls_per_minute",
        whole(1, 100_000),
        600,
        "Compute calls per minute for the whole project; Google refuses more than its quota.",
    ),
    Key(
        "queue_limit",
        whole(1, 100_000),
        1000,
        "Queued jobs that one turn of the loop looks at, in order.",
    ),
    Key("log_level", choice("debug", "info", "warning", "error"), "info", "What is logged."),
    Key("api.host", HOST, _API.host, "The address the API listens on."),
    Key("api.port", whole(0, 65535), _API.port, "Its port; 0 takes a free one."),
    Key(
        "api.max_body_bytes",
        whole(1024, 64 * 1024 * 1024),
        _API.max_body_bytes,
        "A larger request is refused.",
    ),
)

_BUDGET_KEYS: Sequence[Key] = (
    Key("budgets.losses", whole(0, 1000), _BUDGETS.losses, "Lost VMs, before the job fails."),
    Key(
        "budgets.preemptions",
        whole(0, 10_000),
        _BUDGETS.preemptions,
        "Spot VMs taken back and yields asked for, before the job fails.",
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
    Key("clusters.*.spot", FLAG, False, "Spot VMs: cheaper, and Google may take them back."),
    Key("clusters.*.worker", choice("v1", "v2"), "v2", "What runs on the VMs; v2 is our agent."),
    Key(
        "clusters.*.pool",
        choice("mig", "static"),
        "mig",
        "`static`: fixed machines, no managed instance group.",
    ),
    Key(
        "clusters.*.idle_timeout_s",
        optional(SECONDS),
        None,
        "In place of timers.idle_timeout_s for this cluster.",
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
)


def _timer_keys() -> Iterator[Key]:
    for field in dataclasses.fields(Timers):
        assert isinstance(field.default, float), f"timer {field.name} needs a default in seconds"
        yield Key(f"timers.{field.name}", SECONDS, field.default, "")


def _retention_keys() -> Iterator[Key]:
    for field in dataclasses.fields(RetentionRules):
        assert isinstance(field.default, float), f"{field.name} needs a default in days"
        yield Key(f"retention.{field.name}", DAYS, field.default, "")


KEYS: Final[tuple[Key, ...]] = (
    *_GENERAL,
    *_timer_keys(),
    *_BUDGET_KEYS,
    *_retention_keys(),
    *_CATALOGUE,
    *_CLUSTER_KEYS,
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
