"""A VM's life: the one table of transitions, by example and by property."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cluster import ClusterSpec, RegionSpec
from core.errors import IllegalTransition
from core.vm import (
    VM_BEGINNINGS,
    VM_REPEATS,
    VM_TRANSITIONS,
    E,
    V,
    Vm,
    VmEvent,
    VmState,
    advance_vm,
    drop_lease,
    may_become,
    new_vm,
    take_lease,
    vm_word,
    with_facts,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)
SPEC = ClusterSpec(
    name="1xl4",
    gpu_type="l4",
    gpus=1,
    machine_type="g2-standard-4",
    vm_max=8,
    regions=(
        RegionSpec("us-central1", ("us-central1-a",), 1.0, 0.5),
        RegionSpec("us-east1", ("us-east1-b",), 0.9, 0.4),
    ),
)
ROADS: dict[VmState, tuple[VmEvent, ...]] = {
    V.REQUESTED: (),
    V.BOOTING: (E.LISTED,),
    V.READY: (E.LISTED, E.WORKER_READY),
    V.DRAINING: (E.WORKER_READY, E.DRAIN_ASKED),
    V.DELETING: (E.LISTED, E.DELETE_ASKED),
    V.GONE: (E.NOT_LISTED,),
}


def requested(event: VmEvent = E.REQUESTED, region: str = "us-central1") -> Vm:
    return new_vm(SPEC, region, uid="u", name="n", now=NOW, reason="why", event=event)


def in_state(state: VmState) -> Vm:
    vm = requested()
    for event in ROADS[state]:
        vm = advance_vm(vm, event, NOW, "why")
    assert vm.state is state
    return vm


@pytest.mark.parametrize("state", list(VmState))
@pytest.mark.parametrize("event", list(VmEvent))
def test_every_event_from_every_state_is_legal_a_repeat_or_refused(
    state: VmState, event: VmEvent
) -> None:
    """The table is the whole truth: nothing else moves a VM."""
    vm = in_state(state)
    if (state, event) in VM_REPEATS:
        assert advance_vm(vm, event, LATER, "again") is vm
    elif (state, event) in VM_TRANSITIONS:
        after = advance_vm(vm, event, LATER, "why")
        assert (after.state, after.state_since, after.reason) == (
            VM_TRANSITIONS[state, event],
            LATER,
            "why",
        )
        assert after.version == vm.version + 1
        assert may_become(state, after.state)
    else:
        with pytest.raises(IllegalTransition, match=f"VM n is {state}: {event}"):
            advance_vm(vm, event, LATER, "why")


def test_no_step_and_repeat_at_once_and_gone_absorbs() -> None:
    """An event either moves a VM or repeats what is so; nothing leaves GONE."""
    assert not VM_REPEATS & VM_TRANSITIONS.keys()
    assert not any(may_become(V.GONE, state) for state in VmState)
    assert not any(state is V.GONE for state, _ in VM_TRANSITIONS)


def test_every_state_is_reached_and_every_counted_vm_can_go() -> None:
    """No state is dead, and from each that counts there is a way to GONE and to deletion."""
    assert set(VM_TRANSITIONS.values()) | set(VM_BEGINNINGS.values()) == set(VmState)
    for state in set(VmState) - {V.GONE}:
        assert (state, E.NOT_LISTED) in VM_TRANSITIONS
        assert (state, E.DELETE_ASKED) in VM_REPEATS | VM_TRANSITIONS.keys()


@given(st.lists(st.sampled_from(list(VmEvent)), max_size=60))
def test_no_history_breaks_the_rules(events: list[VmEvent]) -> None:
    """Whatever comes, in whatever order: moments and states agree, and GONE absorbs."""
    vm, steps = requested(), 0
    for number, event in enumerate(events, start=1):
        before, moment = vm, NOW + timedelta(seconds=number)
        try:
            vm = advance_vm(vm, event, moment, "why")
        except IllegalTransition:
            vm = before
        steps += vm is not before
        assert not before.state.gone or vm is before
        assert vm.version == 1 + steps
        assert vm.state.gone == (vm.gone_at is not None) == (not vm.counted)
        assert not (vm.state.in_flight and vm.ready_at), "nothing leads back to before READY"
        assert not (vm.state.up and vm.ready_at is None)
        assert not (vm.state.leaving and vm.leaving_since is None)
        assert not (vm.state.ready and vm.leaving_since is not None)
        assert before.ready_at in (None, vm.ready_at), "it is READY for the first time once"
        if before.state.beyond_use:
            assert vm.state.beyond_use, "what is to be deleted never comes back"


@given(
    st.sampled_from(list(VmState)),
    st.booleans(),
    st.sampled_from(["", "boot"]),
    st.sampled_from([(), ("lease",)]),
)
def test_predicates_agree(state: VmState, taken: bool, nonce: str, leases: tuple[str, ...]) -> None:
    """Each VM is in flight, up or beyond use, and exactly one of them."""
    vm = replace(in_state(state), taken=taken, boot_nonce=nonce, leases=leases)
    assert [state.in_flight, state.up, state.beyond_use].count(True) == 1
    assert state.in_flight == (state.unseen or state.booting)
    assert state.up == (state.ready or state.draining)
    assert state.leaving == (state.draining or state.deleting)
    assert state.beyond_use == (state.deleting or state.gone)
    assert not vm.assignable or (state.ready and vm.worker_may_run)
    assert not vm.idle or (state.ready and not vm.busy)
    assert vm.worker_may_run or state.beyond_use


def test_repeat_keeps_what_was_learned_with_it() -> None:
    """An observation of a VM that is READY moves nothing, and tells where it is."""
    ready = in_state(V.READY)
    seen = advance_vm(ready, E.LISTED, LATER, "seen", zone="us-central1-a")
    assert (seen.state, seen.zone, seen.version) == (V.READY, "us-central1-a", ready.version + 1)
    assert seen.state_since == ready.state_since
    assert with_facts(seen, zone="us-central1-a") is seen


def test_orphan_is_stored_to_be_deleted_at_the_best_known_price() -> None:
    """In a region that the cluster has no more, the price of the cheapest is assumed."""
    orphan = requested(E.ADOPTED, "europe-west4")
    assert (orphan.state, orphan.usd_per_hour, orphan.version) == (V.DELETING, 0.9, 1)
    assert requested().usd_per_hour == 1.0


def test_leaving_begins_with_the_drain_and_ends_when_it_is_withdrawn() -> None:
    """The bill of a VM that leaves is told apart from its idle time."""
    drained = advance_vm(in_state(V.READY), E.DRAIN_ASKED, LATER, "idle")
    assert drained.leaving_since == LATER
    assert advance_vm(drained, E.DRAIN_WITHDRAWN, LATER, "work").leaving_since is None
    deleted = advance_vm(drained, E.DELETE_ASKED, LATER + timedelta(seconds=5), "idle")
    gone = advance_vm(deleted, E.NOT_LISTED, LATER + timedelta(seconds=9), "deleted")
    assert (deleted.leaving_since, gone.leaving_since) == (LATER, LATER)


def test_lease_grows_the_version_so_that_a_racing_drain_loses() -> None:
    """And the VM is idle again when the last lease is gone."""
    vm = in_state(V.READY)
    held = take_lease(vm, "a")
    assert (held.version, held.busy, held.idle, held.idle_since) == (
        vm.version + 1,
        True,
        False,
        None,
    )
    free = drop_lease(held, "a", LATER)
    assert (free.idle, free.idle_since, free.version) == (True, LATER, vm.version + 2)


def test_boot_time_out_is_for_vms_in_flight_only() -> None:
    """What waits in the cloud's own queue may take its time; what is READY has made it."""
    late = NOW + timedelta(seconds=61)
    assert in_state(V.BOOTING).has_boot_timed_out(60, late)
    assert not in_state(V.BOOTING).has_boot_timed_out(60, NOW)
    assert not in_state(V.READY).has_boot_timed_out(60, late)
    assert not replace(requested(), together="request").has_boot_timed_out(60, late)


def test_people_see_idle_and_busy_in_place_of_ready() -> None:
    """Also for a state that an older program does not know."""
    assert [vm_word("READY", busy) for busy in (True, False)] == ["busy", "idle"]
    assert vm_word("DRAINING", True) == "draining"
    assert vm_word("SUSPENDED", False) == "suspended"
