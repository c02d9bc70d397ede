"""What a cycle asks of its plan builder is answered as if it had looked through everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.active import ActiveIndex, ActiveRows
from core.changes import Snapshot
from core.job import WAITING, E, Job
from core.job_steps import EventFacts
from core.messages import OutMessage
from core.overlay import Layer
from core.tenants import HOLDS
from core.vm import Vm, drop_lease, take_lease
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, RULES, job, lease_on, snapshot, vm

STATES = (
    (),
    (E.ADMITTED,),
    (E.ADMITTED, E.PLACED),
    (E.ADMITTED, E.PLACED, E.STARTED),
)
CLUSTERS = ("1xl4", "4xl4")
STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2)), max_size=12)


def jobs_and_vms(states: Sequence[int]) -> tuple[list[Job], list[Vm]]:
    """One VM for each; the jobs that hold it know each other."""
    jobs = [
        job(n, *STATES[state], cluster=CLUSTERS[n % 2], tenant_id="ab"[n % 2])
        for n, state in enumerate(states)
    ]
    vms = [
        vm(f"vm-{n}", cluster=CLUSTERS[n % 2], leases=(f"lease-{n}",) if one.lease else ())
        for n, one in enumerate(jobs)
    ]
    return jobs, vms


def kept(jobs: Sequence[Job], vms: Sequence[Vm]) -> Snapshot:
    """As a store gives it that keeps what lives."""
    active = ActiveIndex.of(jobs, vms)
    heads = tuple(one for one in jobs if one.status not in HOLDS)
    rows = ActiveRows(active.jobs, heads)
    return replace(snapshot(()), jobs=rows, vms=ActiveRows(active.vms), active=active, heads=heads)


def go_on(plan: PlanBuilder, number: int, what: int) -> None:
    """Place it, end it, or take it back, if it can be."""
    one = plan.jobs.get(f"job-uid-{number:04d}")
    if one is None:
        return
    if what == 0 and one.lease is None and one.status in WAITING:
        admitted = one if one.status in HOLDS else plan.step(one, E.ADMITTED, "")
        lease = lease_on(f"vm-{number}", number)
        plan.step(admitted, E.PLACED, "", facts=EventFacts(lease=lease), vm=_taken(plan, number))
    elif what == 1 and one.lease is not None:
        plan.step(one, E.VM_LOST, "")
    elif what == 2 and one.status in WAITING and one.status in HOLDS:
        plan.step(one, E.WITHDRAWN, "")


def _taken(plan: PlanBuilder, number: int) -> Vm:
    known = plan.vms[f"uid-vm-{number}"]
    return take_lease(known, f"lease-{number}")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), STEPS)
def test_questions_are_answered_as_by_a_look_at_everything(
    states: list[int], steps: list[tuple[int, int]]
) -> None:
    """With an index that is kept and without, after any steps."""
    jobs, vms = jobs_and_vms(states)
    for snap in (snapshot(tuple(jobs), tuple(vms)), kept(jobs, vms)):
        plan = PlanBuilder(snap, RULES, lambda _: OutMessage("t", b""))
        for number, what in steps:
            go_on(plan, number, what)
        every, fleet = list(plan.jobs.values()), list(plan.vms.values())
        assert len(every) == len(plan.jobs) == len(jobs)
        assert _uids(plan.waiting()) == _uids([j for j in every if j.status in WAITING])
        for name in CLUSTERS:
            mine = [j for j in every if j.cluster == name]
            assert _uids(plan.leased_in(name)) == _uids([j for j in mine if j.lease])
            found = [one.uid for one in plan.idle_in(name)]
            assert sorted(found) == sorted(v.uid for v in fleet if v.cluster == name and v.idle)
        for one in fleet:
            here = [j for j in every if j.lease and j.lease.vm_uid == one.uid]
            assert _uids(plan.jobs_on(one.uid)) == _uids(here)


def _uids(jobs: Sequence[Job]) -> list[str]:
    return sorted(one.uid for one in jobs)


def test_a_snapshot_of_one_cluster_is_kept() -> None:
    """A task that waits for the cloud has what it took, though the store has gone on."""
    jobs, vms = jobs_and_vms([2, 2, 1, 0])
    snap = kept(jobs, vms)
    mine = snap.only("1xl4")
    assert [one.uid for one in mine.jobs] == ["job-uid-0000", "job-uid-0002"]
    assert [one.uid for one in mine.vms] == ["uid-vm-0", "uid-vm-2"]
    assert snap.active is not None
    snap.active.drop_job("job-uid-0000")
    snap.active.put_vm(drop_lease(vms[0], "lease-0", NOW))
    assert [one.uid for one in mine.jobs] == ["job-uid-0000", "job-uid-0002"]
    assert mine.vms[0].leases == ("lease-0",)
    plain = snapshot(tuple(jobs), tuple(vms)).only("1xl4")
    assert {one.uid for one in plain.vms} == {one.uid for one in mine.vms}


def test_a_layer_leaves_what_is_below_alone() -> None:
    """It answers as one mapping of both."""
    below = {"a": 1, "b": 2}
    layer = Layer(below, {"c": 3})
    layer["a"] = 9
    assert below == {"a": 1, "b": 2}
    assert (dict(layer), len(layer), list(layer)) == ({"a": 9, "b": 2, "c": 3}, 3, ["a", "b", "c"])
    assert list(layer.values()) == [9, 2, 3]
    assert layer.get("z") is None
    assert "b" in layer
    assert "z" not in layer
