"""What the cloud says about its own regions is learned once, and only if it is good."""

from __future__ import annotations

from core.changes import PutSupplyHistory
from core.cluster import ClusterSpec
from core.mig import CapacityHint
from core.supply import SupplyHistory, SupplyOutcome
from orchestrator.supply.advice import Hints
from orchestrator.supply.observations import ClusterState
from tests.builders import NOW, at, cluster
from tests.orchestrator.folding import rules

SPOT = cluster(spot=True)
ZONE = "us-east1-a"


class Oracle:
    """Advice that a test writes down."""

    def __init__(self, *hints: CapacityHint) -> None:
        self.hints = hints

    async def advise(self, spec: ClusterSpec, region: str) -> tuple[CapacityHint, ...]:
        return tuple(hint for hint in self.hints if hint.place.region == region)


def hint(likely: bool = True, at_s: float = 0.0, zone: str = ZONE) -> CapacityHint:
    return CapacityHint(SPOT.supply_key("us-east1", zone), likely, at(at_s))


def heed(hints: Hints) -> dict[str, SupplyHistory]:
    known = hints.heed(ClusterState((), ()), rules(SPOT, NOW))
    written = [c.supply for c in known.changes if isinstance(c, PutSupplyHistory)]
    assert written == list(known.supply)
    return {seen.zone: seen for seen in known.supply}


async def test_good_advice_lifts_the_zone_and_its_region() -> None:
    """It counts like a zone that Google names in an error: nobody has tried it since."""
    hints = Hints(Oracle(hint()))
    await hints.ask(SPOT, "us-east1")
    learned = heed(hints)
    assert {zone: seen.last for zone, seen in learned.items()} == {
        "": SupplyOutcome.HINT,
        ZONE: SupplyOutcome.HINT,
    }


async def test_the_same_advice_is_heard_once() -> None:
    """Asked in every reconcile, the same answer is no news; a newer one is."""
    oracle = Oracle(hint())
    hints = Hints(oracle)
    await hints.ask(SPOT, "us-east1")
    assert heed(hints)
    await hints.ask(SPOT, "us-east1")
    assert heed(hints) == {}
    oracle.hints = (hint(at_s=300),)
    await hints.ask(SPOT, "us-east1")
    assert heed(hints)


async def test_bad_advice_teaches_nothing() -> None:
    """A low score is no refusal: the region keeps the chance that supply history gives it."""
    hints = Hints(Oracle(hint(likely=False, zone="")))
    await hints.ask(SPOT, "us-east1")
    assert heed(hints) == {}


def test_who_is_not_asked_about() -> None:
    """A region that was withdrawn, standard VMs, and anything where the cloud has no opinion."""
    hints = Hints(Oracle(hint()))
    assert hints.wanted(SPOT, "us-east1")
    assert not hints.wanted(SPOT, "mars-north1")
    assert not hints.wanted(cluster(), "us-east1")
    assert not Hints(None).wanted(SPOT, "us-east1")
