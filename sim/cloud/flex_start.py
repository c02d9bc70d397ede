"""Asking for several VMs at once, and asking whether they are to be had: what Google accepts."""

from collections.abc import Mapping
from dataclasses import dataclass

from sim.cloud.model import ApiError, Mig
from sim.cloud.operations import invalid
from sim.cloud.parsing import Fields
from sim.cloud.world import NAME_PATTERN

RUN_MIN_S, RUN_MAX_S = 600.0, 7 * 86400.0
SIZE_MAX = 1000
_UPTIME_LONG, _UPTIME_SHORT = "3600s", "600s"


@dataclass(frozen=True, slots=True)
class FlexStartRequest:
    """The body of a resize request: names, or a count for names of the group's own making."""

    name: str
    names: tuple[str, ...]
    count: int
    run_s: float

    def check(self, mig: Mig) -> None:
        """Raises ApiError if the group does not take such a request."""
        if self.name in mig.requests:
            raise ApiError(409, "alreadyExists", f"The resize request '{self.name}' already exists")
        if mig.spec.default_action_on_failure != "DO_NOTHING":
            action = mig.spec.default_action_on_failure
            raise invalid("instanceLifecyclePolicy.defaultActionOnFailure", action, "DO_NOTHING")


def read_flex_start(body: object) -> FlexStartRequest:
    problems: list[str] = []
    fields = Fields(body, "", problems)
    duration = fields.inner("requestedRunDuration")
    run_s = float(duration.text("seconds", pattern=r"[0-9]{1,9}") or 0)
    items = fields.objects("instances")
    names = tuple(item.text("name", pattern=NAME_PATTERN) for item in items)
    asked = FlexStartRequest(
        name=fields.text("name", pattern=NAME_PATTERN),
        names=names,
        count=fields.whole("resizeBy", 0, high=SIZE_MAX),
        run_s=run_s,
    )
    if bool(asked.names) == bool(asked.count):
        problems.append("expected either instances or resizeBy")
    if not RUN_MIN_S <= run_s <= RUN_MAX_S:
        problems.append(f"requestedRunDuration: expected {RUN_MIN_S:g} to {RUN_MAX_S:g} s")
    if problems:
        raise ApiError(400, "invalid", "; ".join(problems))
    return asked


@dataclass(frozen=True, slots=True)
class AskedAdvice:
    """The body of an advice.capacity call, as far as it is needed."""

    zones: tuple[str, ...]
    machine_type: str
    spot: bool
    size: int


def read_advice(body: object, zones: tuple[str, ...], known: frozenset[str]) -> AskedAdvice:
    """`zones` are those of the region, `known` the machine types that exist. Google takes several
    kinds of machine at once; this cloud answers for one at a time."""
    problems: list[str] = []
    fields = Fields(body, "", problems)
    policy = fields.inner("distributionPolicy")
    asked = tuple(item.text("zone").rpartition("/")[2] for item in policy.objects("zones"))
    selections = fields.inner("instanceFlexibilityPolicy").values("instanceSelections")
    types = [kind for selection in selections for kind in selection.texts("machineTypes")]
    scheduling = fields.inner("instanceProperties").inner("scheduling")
    model = scheduling.choice("provisioningModel", ("SPOT", "FLEX_START"))
    size = fields.whole("size", low=1, high=SIZE_MAX)
    problems += [f"zone {z}: expected one of {', '.join(zones)}" for z in asked if z not in zones]
    if len(types) != 1 or types[0] not in known:
        problems.append(f"machineTypes: expected one that exists, got {types}")
    if problems:
        raise ApiError(400, "invalid", "; ".join(problems))
    return AskedAdvice(asked or zones, types[0], model == "SPOT", size)


def advice_body(asked: AskedAdvice, room: Mapping[str, int]) -> dict[str, object]:
    """One recommendation: the zones with most room first, and how likely it is to work out."""
    left, shards = asked.size, []
    for zone, free in sorted(room.items(), key=lambda pair: (-pair[1], pair[0])):
        count = min(left, free)
        if count:
            shards.append(
                {
                    "zone": f"zones/{zone}",
                    "machineType": asked.machine_type,
                    "provisioningModel": "SPOT" if asked.spot else "FLEX_START",
                    "instanceCount": count,
                }
            )
        left -= count
    obtainability = 0.9 if left == 0 else 0.5 if shards else 0.1
    uptime = _UPTIME_LONG if left == 0 else _UPTIME_SHORT
    scores = {"obtainability": obtainability, "estimatedUptime": uptime}
    return {"recommendations": [{"scores": scores, "shards": shards}]}
