"""Faults that can be set while the pretend cloud runs. Values, their parser, and the board that
knows which ones are in force at a given time. No clock: whoever asks says what time it is."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields

from sim.cloud.parsing import Fields, InvalidInput, nearest

API_ERROR_KINDS = ("rateLimitExceeded", "429", "500", "503", "timeout-after-success")
ACTIVE_FAULTS_MAX = 1000
GLOBAL = "global"
"""In place of a region: a quota over all of them."""
GLOBAL_METRIC = "GPUS_ALL_REGIONS"
WORDS_MAX = 1000
CALLS = ("createInstances", "deleteInstances", "resizeRequests.insert")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that exist, so that a misspelt one can be answered with the nearest."""

    regions: frozenset[str]
    zones: frozenset[str]
    machine_types: frozenset[str]
    metrics: frozenset[str]
    vms: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
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
    region: str = ""
    metric: str = ""
    limit: float = 0.0


@dataclass(frozen=True, slots=True)
class Unsupported(Lasting):
    zone: str = ""
    machine_type: str = ""


@dataclass(frozen=True, slots=True)
class AddressSpace(Lasting):
    region: str = ""


@dataclass(frozen=True, slots=True)
class Permissions(Lasting):
    region: str = ""


@dataclass(frozen=True, slots=True)
class CreateError(Lasting):
    """Google refuses new VMs with an error of its own, whatever it is."""

    region: str = ""
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class OperationError(Lasting):
    """Calls are accepted, and their operations end with an error: nothing was done."""

    region: str = ""
    call: str = "*"
    code: str = ""
    message: str = ""
    takes_s: float = 0.0  # accepted → the operation is over


@dataclass(frozen=True, slots=True)
class NoDriver(Lasting):
    """VMs come up without their GPUs' driver: an image that was made badly."""

    region: str = ""


@dataclass(frozen=True, slots=True)
class SlowBoots(Lasting):
    region: str = ""
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


LastingFault = (
    Stockout
    | QuotaFault
    | Unsupported
    | AddressSpace
    | Permissions
    | CreateError
    | OperationError
    | NoDriver
    | SlowBoots
    | ApiErrors
)
Fault = LastingFault | Preempt | Maintain | Crash | Clear

KINDS = {
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
) -> LastingFault | None:
    """A fault that a world may start with. Problems are added to the caller's list."""
    fault = _parse(raw, known, at, problems)
    if isinstance(fault, Preempt | Maintain | Crash | Clear):
        problems.append(f"{at}.kind: {kind_of(fault)} happens once, a world cannot start with it")
        return None
    return fault


def _parse(raw: object, known: KnownNames, at: str, problems: list[str]) -> Fault | None:
    reader = Fields(raw, at, problems)
    kind = reader.text("kind", "")
    if kind not in KINDS:
        if isinstance(raw, dict):
            reader.problem("kind", f"a kind of fault ({nearest(str(kind), KINDS)})")
        return None
    cls = KINDS[kind]
    if issubclass(cls, Lasting):
        for_s = reader.optional_number("for_s", low=0.001)
        fault: Fault = _lasting(cls, reader, known, for_s, reader.number("after_s", 0.0))
    else:
        fault = _momentary(kind, reader, known)
    reader.done()
    return fault


def _lasting(
    cls: type[Lasting], reader: Fields, known: KnownNames, for_s: float | None, after_s: float
) -> LastingFault:
    if cls is Stockout:
        return _stockout(reader, known, for_s, after_s)
    if cls is Unsupported:
        zone = reader.known("zone", known.zones, "zone")
        machine_type = reader.known("machine_type", known.machine_types, "machine type")
        return Unsupported(for_s, after_s, zone, machine_type)
    if cls is ApiErrors:
        return _api_errors(reader, known, for_s, after_s)
    if cls is QuotaFault:
        return _quota(reader, known, for_s, after_s)
    region = reader.known("region", known.regions, "region")
    if cls is CreateError:
        code, message = reader.text("code"), reader.text("message", "")
        return CreateError(for_s, after_s, region, code[:WORDS_MAX], message[:WORDS_MAX])
    if cls is OperationError:
        call = reader.choice("call", ("*", *CALLS), "*")
        code, message = reader.text("code"), reader.text("message", "")
        takes_s = reader.number("takes_s", 0.0, high=600.0)
        words = (code[:WORDS_MAX], message[:WORDS_MAX])
        return OperationError(for_s, after_s, region, call, *words, takes_s)
    if cls is SlowBoots:
        if not (reader.has("factor") or reader.has("seconds")):
            reader.problem("factor", "a factor or seconds to slow boots by")
        factor = reader.number("factor", 1.0, low=0.01, high=10_000)
        return SlowBoots(for_s, after_s, region, factor, reader.number("seconds", 0.0))
    if cls is NoDriver:
        return NoDriver(for_s, after_s, region)
    if cls is AddressSpace:
        return AddressSpace(for_s, after_s, region)
    return Permissions(for_s, after_s, region)


def _quota(reader: Fields, known: KnownNames, for_s: float | None, after_s: float) -> QuotaFault:
    region = reader.known("region", known.regions | {GLOBAL}, "region")
    metrics = {GLOBAL_METRIC} if region == GLOBAL else known.metrics - {GLOBAL_METRIC}
    metric = reader.known("metric", metrics, "quota metric")
    return QuotaFault(for_s, after_s, region, metric, reader.number("limit"))


def _stockout(reader: Fields, known: KnownNames, for_s: float | None, after_s: float) -> Stockout:
    zone = reader.optional_known("zone", known.zones, "zone")
    region = reader.optional_known("region", known.regions, "region")
    if reader.has("zone") == reader.has("region"):
        reader.problems.append(f"{reader.path('zone')}: expected either a zone or a region")
    types = known.machine_types | {"*"}
    machine_type = reader.known("machine_type", types, "machine type", "*")
    return Stockout(for_s, after_s, zone, region, machine_type, reader.optional_flag("spot"))


def _api_errors(
    reader: Fields, known: KnownNames, for_s: float | None, after_s: float
) -> ApiErrors:
    kinds = reader.texts("kinds", ("503",))
    if any(kind not in API_ERROR_KINDS for kind in kinds):
        reader.problem("kinds", "kinds out of " + ", ".join(API_ERROR_KINDS))
    return ApiErrors(
        for_s,
        after_s,
        reader.known("region", known.regions | {"*"}, "region", "*"),
        reader.number("rate", 0.0, high=1.0),
        kinds,
        reader.number("latency_s", 0.0, high=600.0),
    )


def _momentary(kind: str, reader: Fields, known: KnownNames) -> Preempt | Maintain | Crash | Clear:
    if kind == "clear":
        return Clear(reader.optional_text("id"))
    if kind == "crash":
        return Crash(reader.known("vm", known.vms, "VM"))
    if kind == "maintain":
        return Maintain(reader.known("vm", known.vms, "VM"))
    vm = reader.optional_known("vm", known.vms, "VM")
    zone = reader.optional_known("zone", known.zones, "zone")
    if reader.has("vm") == reader.has("zone"):
        reader.problems.append(f"{reader.path('vm')}: expected either a vm or a zone")
    return Preempt(vm, zone)


@dataclass(frozen=True, slots=True)
class ActiveFault:
    id: str
    fault: LastingFault
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

    def add(self, fault: LastingFault, now: float) -> ActiveFault:
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

    def _holding(self, now: float) -> Iterator[LastingFault]:
        return (a.fault for a in self._active.values() if a.holds(now))

    def stocked_out(
        self, zone: str, region: str, machine_type: str, spot: bool, now: float
    ) -> bool:
        return any(
            isinstance(f, Stockout) and f.hits(zone, region, machine_type, spot)
            for f in self._holding(now)
        )

    def unsupported(self, zone: str, machine_type: str, now: float) -> bool:
        return any(
            isinstance(f, Unsupported) and (f.zone, f.machine_type) == (zone, machine_type)
            for f in self._holding(now)
        )

    def quota(self, region: str, metric: str, now: float) -> float | None:
        """The newest limit that a fault sets, if one does."""
        limit = None
        for f in self._holding(now):
            if isinstance(f, QuotaFault) and (f.region, f.metric) == (region, metric):
                limit = f.limit
        return limit

    def no_addresses(self, region: str, now: float) -> bool:
        return any(isinstance(f, AddressSpace) and f.region == region for f in self._holding(now))

    def forbidden(self, region: str, now: float) -> bool:
        return any(isinstance(f, Permissions) and f.region == region for f in self._holding(now))

    def create_error(self, region: str, now: float) -> CreateError | None:
        """The newest one, if there is one."""
        found = [f for f in self._holding(now) if isinstance(f, CreateError)]
        return next((f for f in reversed(found) if f.region == region), None)

    def operation_error(self, region: str, call: str, now: float) -> OperationError | None:
        """The newest one, if there is one."""
        found = [f for f in self._holding(now) if isinstance(f, OperationError)]
        hits = (f for f in reversed(found) if f.region == region and f.call in ("*", call))
        return next(hits, None)

    def no_driver(self, region: str, now: float) -> bool:
        return any(isinstance(f, NoDriver) and f.region == region for f in self._holding(now))

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
