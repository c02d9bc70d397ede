"""Faults that can be set while the pretend cloud runs. Values, their parser, and the board that
knows which ones are in force at a given time. No clock: the caller says what time it is."""

import random
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from sim.cloud.parsing import Fields, InvalidInput, nearest

API_ERROR_KINDS = ("rateLimitExceeded", "429", "500", "503", "timeout-after-success")
ACTIVE_FAULTS_MAX = 1000
GLOBAL = "global"
"""In place of a region: a quota over all of them."""
GLOBAL_METRIC = "GPUS_ALL_REGIONS"
WORDS_MAX = 1000
CALLS = ("createInstances", "deleteInstances", "resizeRequests.insert")


F = TypeVar("F", bound="Lasting")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that exist, so that a misspelt one can be answered with the nearest."""

    regions: frozenset[str]
    zones: frozenset[str]
    machine_types: frozenset[str]
    metrics: frozenset[str]
    vms: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """A fault that holds from ``after_s`` for ``for_s`` (None: until it is cleared)."""

    for_s: float | None = None
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stockout(Lasting):
    zone: str | None = None
    region: str | None = None
    machine_type: str = "*"
    spot: bool | None = None  # None: spot and standard alike

    def hits(self, zone: str, region: str, machine_type: str, spot: bool) -> bool:
        return (
            (self.zone == zone or self.region == region)
            and self.machine_type in ("*", machine_type)
            and self.spot in (None, spot)
        )


@dataclass(frozen=True, slots=True)
class QuotaFault(Lasting):
    region: str
    metric: str
    limit: float


@dataclass(frozen=True, slots=True)
class Unsupported(Lasting):
    zone: str
    machine_type: str


@dataclass(frozen=True, slots=True)
class InRegion(Lasting):
    region: str


class AddressSpace(InRegion):
    """No internal address is left."""


class Permissions(InRegion):
    """VMs may not be created."""


class NoDriver(InRegion):
    """VMs come up without their GPUs' driver: an image that was made badly."""


@dataclass(frozen=True, slots=True)
class CreateError(InRegion):
    """Google refuses new VMs with an error of its own, whatever it is."""

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class OperationError(InRegion):
    """Calls are accepted, and their operations end with an error: nothing was done."""

    call: str = "*"
    code: str = field(kw_only=True)
    message: str = ""
    takes_s: float = 0.0  # accepted → the operation is over


@dataclass(frozen=True, slots=True)
class SlowBoots(InRegion):
    factor: float = 1.0
    seconds: float = 0.0  # added after the factor


@dataclass(frozen=True, slots=True)
class ApiErrors(Lasting):
    region: str = "*"
    rate: float = 0.0  # share of calls that fail
    kinds: tuple[str, ...] = ("503",)
    latency_s: float = 0.0  # added to every call, failed or not


@dataclass(frozen=True, slots=True)
class Preempt:
    """Happens once: Google takes one spot VM back, or all of a zone."""

    vm: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Maintain:
    """Happens once: the VM's host is to be maintained. A VM with GPUs cannot move: it is told, and
    stopped later."""

    vm: str


@dataclass(frozen=True, slots=True)
class Crash:
    """Happens once: the VM loses power, without notice."""

    vm: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Happens once: one fault ends, or all of them."""

    id: str | None = None


Fault = Lasting | Preempt | Maintain | Crash | Clear

KINDS: dict[str, type[Fault]] = {
    "stockout": Stockout,
    "quota": QuotaFault,
    "unsupported": Unsupported,
    "address-space": AddressSpace,
    "permissions": Permissions,
    "create-error": CreateError,
    "operation-error": OperationError,
    "no-driver": NoDriver,
    "slow-boots": SlowBoots,
    "api-errors": ApiErrors,
    "preempt": Preempt,
    "maintain": Maintain,
    "crash": Crash,
    "clear": Clear,
}


_NOUNS = {"machine_type": "machine type", "vm": "VM"}
_EITHER = {"stockout": ("zone", "region"), "preempt": ("vm", "zone")}
_BOUNDS: dict[str, dict[str, Any]] = {
    "for_s": {"low": 0.001},
    "takes_s": {"high": 600.0},
    "latency_s": {"high": 600.0},
    "rate": {"high": 1.0},
    "factor": {"low": 0.01, "high": 10_000},
}


def kind_of(fault: Fault) -> str:
    return next(kind for kind, cls in KINDS.items() if type(fault) is cls)


def describe(fault: Fault) -> dict[str, object]:
    """The JSON object that would set this fault again."""
    shown: dict[str, object] = {"kind": kind_of(fault)}
    for f in fields(fault):
        value = getattr(fault, f.name)
        shown[f.name] = list(value) if isinstance(value, tuple) else value
    return shown


def parse_fault(raw: object, known: KnownNames) -> Fault:
    """A fault from its JSON object, or BadInput that says all that is wrong and what exists."""
    problems: list[str] = []
    fault = _parse(raw, known, "", problems)
    if fault is None or problems:
        raise InvalidInput("fault", problems)
    return fault


def parse_lasting_fault(
    raw: object, known: KnownNames, at: str, problems: list[str]
) -> Lasting | None:
    """A fault that a world may start with. Problems are added to the caller's list."""
    fault = _parse(raw, known, at, problems)
    if fault is None or isinstance(fault, Lasting):
        return fault
    problems.append(f"{at}.kind: {kind_of(fault)} happens once, a world cannot start with it")
    return None


def _parse(raw: object, known: KnownNames, at: str, problems: list[str]) -> Fault | None:
    reader = Fields(raw, at, problems)
    kind = reader.text("kind", "")
    if kind not in KINDS:
        if isinstance(raw, dict):
            reader.problem("kind", f"a kind of fault ({nearest(str(kind), KINDS)})")
        return None
    cls = KINDS[kind]
    found: dict[str, Any] = {}
    for each in fields(cls):
        found[each.name] = _value(cls, each, reader, known, found)
    one, other = _EITHER.get(kind, ("", ""))
    if one and reader.has(one) == reader.has(other):
        problems.append(f"{reader.path(one)}: expected either a {one} or a {other}")
    if cls is SlowBoots and not (reader.has("factor") or reader.has("seconds")):
        reader.problem("factor", "a factor or seconds to slow boots by")
    reader.done()
    return cls(**found)


def _value(
    cls: type[Fault], each: Field[Any], reader: Fields, known: KnownNames, found: dict[str, Any]
) -> Any:
    """One field of a fault. Its default says whether it may be missing, its name what it is."""
    name, default = each.name, each.default
    if default is None and not reader.given(name):
        return None
    given = {} if default in (None, MISSING) else {"default": default}
    match name:
        case "region" | "zone" | "machine_type" | "vm":
            names = getattr(known, f"{name}s") | ({"*"} if default == "*" else set())
            names |= {GLOBAL} if cls is QuotaFault else set()
            return reader.known(name, names, _NOUNS.get(name, name), **given)
        case "metric":
            everywhere = found["region"] == GLOBAL
            names = {GLOBAL_METRIC} if everywhere else known.metrics - {GLOBAL_METRIC}
            return reader.known(name, names, "quota metric")
        case "call":
            return reader.choice(name, ("*", *CALLS), **given)
        case "kinds":
            kinds = reader.texts(name, **given)
            if any(kind not in API_ERROR_KINDS for kind in kinds):
                reader.problem(name, "kinds out of " + ", ".join(API_ERROR_KINDS))
            return kinds
        case "code" | "message" | "id":
            return reader.text(name, **given)[:WORDS_MAX]
        case "spot":
            return reader.flag(name, False)
        case _:
            return reader.number(name, **given, **_BOUNDS.get(name, {}))


@dataclass(frozen=True, slots=True)
class ActiveFault:
    id: str
    fault: Lasting
    since: float
    until: float | None

    def holds(self, now: float) -> bool:
        return self.since <= now and not self.over(now)

    def over(self, now: float) -> bool:
        return self.until is not None and now >= self.until


@dataclass(frozen=True, slots=True)
class ApiVerdict:
    """What happens to one API call: how long it is held up, and how it fails, if it does."""

    latency_s: float = 0.0
    kind: str | None = None


class FaultBoard:
    """The faults in force, and answers to what they change."""

    def __init__(self) -> None:
        self._active: dict[str, ActiveFault] = {}
        self._count = 0

    def add(self, fault: Lasting, now: float) -> ActiveFault:
        self._forget_over(now)
        if len(self._active) >= ACTIVE_FAULTS_MAX:
            raise InvalidInput(
                "fault", [f"{ACTIVE_FAULTS_MAX} faults are active; clear some first"]
            )
        self._count += 1
        since = now + fault.after_s
        until = None if fault.for_s is None else since + fault.for_s
        active = ActiveFault(f"f{self._count}", fault, since, until)
        self._active[active.id] = active
        return active

    def clear(self, fault_id: str | None, now: float) -> tuple[str, ...]:
        self._forget_over(now)
        if fault_id is None:
            gone = tuple(self._active)
            self._active.clear()
            return gone
        if fault_id not in self._active:
            raise InvalidInput(
                "fault", [f"id: no active fault {fault_id!r} ({nearest(fault_id, self._active)})"]
            )
        del self._active[fault_id]
        return (fault_id,)

    def active(self, now: float) -> tuple[ActiveFault, ...]:
        self._forget_over(now)
        return tuple(self._active.values())

    def _forget_over(self, now: float) -> None:
        self._active = {k: a for k, a in self._active.items() if not a.over(now)}

    def _holding(self, now: float) -> Iterator[Lasting]:
        return (a.fault for a in self._active.values() if a.holds(now))

    def stocked_out(
        self, zone: str, region: str, machine_type: str, spot: bool, now: float
    ) -> bool:
        return any(
            isinstance(f, Stockout) and f.hits(zone, region, machine_type, spot)
            for f in self._holding(now)
        )

    def newest(self, kind: type[F], now: float, **where: str) -> F | None:
        """The newest fault of a kind with these fields, of which "*" stands for every value."""
        found = [f for f in self._holding(now) if isinstance(f, kind)]
        return next(
            (
                fault
                for fault in reversed(found)
                if all(getattr(fault, name) in ("*", value) for name, value in where.items())
            ),
            None,
        )

    def boot_time(self, region: str, seconds: float, now: float) -> float:
        for f in self._holding(now):
            if isinstance(f, SlowBoots) and f.region == region:
                seconds = seconds * f.factor + f.seconds
        return seconds

    def api_verdict(self, region: str, dice: random.Random, now: float) -> ApiVerdict:
        latency_s, kind = 0.0, None
        for f in self._holding(now):
            if isinstance(f, ApiErrors) and f.region in ("*", region):
                latency_s += f.latency_s
                if kind is None and dice.random() < f.rate:
                    kind = dice.choice(f.kinds)
        return ApiVerdict(latency_s, kind)
