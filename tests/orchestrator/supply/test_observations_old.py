"""What a group remembers is news once, and no name that was seen holds the limit after it left."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from core.actions import Create
from core.changes import PutExperience, PutTrouble
from core.mig import GroupError, MachineState, Member, Refusal
from core.region_blocks import Trouble, TroubleKind
from core.supply import Experience, Outcome
from core.timers import Timers
from core.vm import Vm, VmState
from orchestrator.supply.observations import Folded, fold
from tests.builders import NOW, at, cluster, snapshot, vm
from tests.orchestrator.test_cluster_manager import House

V = VmState
STOCKOUT = Refusal(TroubleKind.STOCKOUT, "no L4 left")


def remembered(
    *vms: Vm, troubles: tuple[Trouble, ...] = (), experience: tuple[Experience, ...] = ()
) -> Folded:
    """A look at a group that has nothing but the memory of a refusal a minute ago."""
    seen = replace(snapshot(), errors=(GroupError(at(-60), "vm-0", STOCKOUT),))
    return fold(seen, cluster(), vms, troubles, frozenset(), Timers(), NOW, experience=experience)


def known(last: Outcome, last_s: float) -> Experience:
    spec = cluster()
    region = snapshot().region
    return Experience(
        region, "", spec.machine_type, spec.spot, NOW, hits=1.0, last=last, last_at=at(last_s)
    )


def test_a_remembered_refusal_is_learned() -> None:
    """A member that left before anybody looked at it leaves its reason in the group's list."""
    found = remembered()
    (trouble,) = [c.trouble for c in found.changes if isinstance(c, PutTrouble)]
    assert trouble.kind is TroubleKind.STOCKOUT


def test_what_was_heard_before_is_not_news_for_the_next_leader() -> None:
    """A refusal that is stored already does not begin a second block after the first is over."""
    (first,) = remembered().troubles
    over = replace(first, last_seen=at(-59), until=at(-14))
    found = remembered(troubles=(over,))
    assert found.changes == ()
    assert found.troubles == (over,)


def test_a_delivery_since_then_overtakes_it() -> None:
    """A region that has delivered after the refusal is not believed to be empty again."""
    found = remembered(experience=(known(Outcome.HIT, -30),))
    assert not [c for c in found.changes if isinstance(c, PutTrouble | PutExperience)]
    older = remembered(experience=(known(Outcome.HIT, -90),))
    assert [c for c in older.changes if isinstance(c, PutTrouble)]
    assert timedelta(seconds=0) < older.troubles[0].until - NOW


def test_a_taking_since_then_does_not() -> None:
    """What a place took back it may have given yesterday. If one of its VMs came after the refusal,
    that is a delivery, whatever was seen last."""
    taken = known(Outcome.TAKEN, -30)
    assert [c for c in remembered(experience=(taken,)).changes if isinstance(c, PutTrouble)]
    young, old = (vm("vm-1", V.DELETING, running_since=at(s)) for s in (-50, -600))
    assert not remembered(young, experience=(taken,)).troubles
    assert remembered(old, experience=(taken,)).troubles


async def test_a_refused_vm_that_was_taken_back_frees_its_place_at_once() -> None:
    """It was listed and is not any more: it holds no place under the limit, and is not deleted
    again and again."""
    house = await House(cluster(vm_max=1)).open()
    quota = Refusal(TroubleKind.QUOTA, "Quota 'NVIDIA_L4_GPUS' exceeded.")

    def refuse(action: Create) -> None:
        group = house.cloud.members.setdefault(action.region, {})
        for name in action.names:
            group[name] = Member(name, f"{action.region}-a", MachineState.NONE, refusals=(quota,))

    house.cloud._add = refuse  # type: ignore[method-assign]
    await house.wait_for_work()
    await house.rounds(8)
    assert house.cloud.calls["create"] >= 2
    assert house.cloud.calls["delete"] <= house.cloud.calls["create"]
