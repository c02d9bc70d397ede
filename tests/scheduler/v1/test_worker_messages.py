"""v1 workers: start messages, claims, ends; each step as a value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pytest

from core.changes import JobMove, JobNote, Send
from core.job import E, Job, Lease, Offer, S
from core.job_steps import EventFacts, advance
from core.messages import Control, Heartbeat, HeartbeatStatus, OutMessage, StartJob, StopJob
from core.timers import V1_LEAST_S, Timers
from core.vm import Vm, VmState
from scheduler.cycle.heartbeats import ReceivedHeartbeat, apply_heartbeats
from scheduler.cycle.lost_vms import end_refused, lose_vms, meet_deadlines, requeue_lost
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from tests.builders import RULES, at, cluster, dice, job, snapshot, vm
from tests.workers import trusted

B, V = HeartbeatStatus, VmState
SPEC = cluster("1xl4", worker="v1")
V1 = frozenset({"1xl4"})


def waiting(number: int, **spec: object) -> Job:
    return job(number, E.ADMITTED, workflow="train", **spec)  # type: ignore[arg-type]


def out(number: int, on: str, **spec: object) -> Job:
    """Its start message is out for that VM."""
    return replace(waiting(number, **spec), offer=Offer(f"lease-{number}", f"uid-{on}", at(0)))


def taken(number: int, on: str, *events: E, **spec: object) -> Job:
    lease = Lease(f"lease-{number}", on, f"uid-{on}", "us-central1", "z", (0,))
    held = advance(
        waiting(number, **spec), E.FOUND_BY_V1, at(number), RULES, facts=EventFacts(lease=lease)
    )
    for event in events:
        held = advance(held, event, at(number), RULES)
    return held


def booting(name: str, **facts: object) -> Vm:
    up = {"instance_id": "7", "running_since": at(0), "boot_nonce": "", "last_beat_at": None}
    return vm(name, V.BOOTING, **{**up, "idle_since": None, "ready_at": None, **facts})  # type: ignore[arg-type]


def busy(name: str, number: int = 1, **facts: object) -> Vm:
    held = {"leases": (f"lease-{number}",), "boot_nonce": "v1", "worker": "v1", "idle_since": None}
    return vm(name, V.READY, **{"running_since": at(0), **held, **facts})  # type: ignore[arg-type]


def said(
    status: HeartbeatStatus | str, name: str, number: int = 1, **words: object
) -> ReceivedHeartbeat:
    heartbeat = {"job_id": f"job-{number}", "vm_name": name, "version": 1, **words}
    return ReceivedHeartbeat(Heartbeat(status=status, **heartbeat), at(10), f"m-{status}-{name}")  # type: ignore[arg-type]


class Cycle:
    """One cycle over these rows."""

    def __init__(
        self,
        jobs: Iterable[Job],
        vms: Iterable[Vm],
        *heartbeats: ReceivedHeartbeat,
        plan: bool = True,
        v1: frozenset[str] = V1,
        recalled: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.told: list[Control] = []
        snap = snapshot(tuple(jobs), tuple(vms))
        self.plan = PlanBuilder(snap, RULES, self._encode)
        self.plan.recalled = recalled or {}
        apply_heartbeats(self.plan, heartbeats, trusted, v1)
        if plan:
            specs = {name: cluster(name, worker="v1") for name in sorted(v1)}
            around = Circumstances(specs, Silence(()), True)
            self.reasons = {w.uid: w.why for w in plan_jobs(self.plan, snap, around, dice())}

    def _encode(self, message: Control) -> OutMessage:
        self.told.append(message)
        return OutMessage("topic", b"")

    def job(self, number: int = 1) -> Job:
        return self.plan.jobs[f"job-uid-{number:04d}"]

    def place(self, number: int = 1) -> str:
        """Which VM holds it."""
        lease = self.job(number).lease
        return lease.vm_name if lease else ""

    def vm(self, name: str) -> Vm:
        return self.plan.vms[f"uid-{name}"]

    @property
    def starts(self) -> list[str]:
        return [message.spec.job_id for message in self.told if isinstance(message, StartJob)]

    @property
    def stops(self) -> list[StopJob]:
        return [message for message in self.told if isinstance(message, StopJob)]


# --- start messages ----------------------------------------------------------------------


def test_no_more_messages_than_vms_and_the_best_first() -> None:
    """Two VMs about to look: the two best of three jobs are sent, each for one of them."""
    jobs = [waiting(1), waiting(2, priority=900), waiting(3, priority=700)]
    cycle = Cycle(jobs, [booting("vm-a"), booting("vm-b")])
    assert cycle.starts == ["job-2", "job-3"]
    assert {cycle.job(n).offer.vm_uid for n in (2, 3)} == {"uid-vm-a", "uid-vm-b"}  # type: ignore[union-attr]
    assert cycle.job(1).offer is None
    batch = next(u for u in cycle.plan.batches if any(isinstance(c, Send) for c in u))
    assert any(isinstance(change, JobMove) for change in batch), "told in the same unit"


def test_a_vm_without_a_machine_is_sent_nothing() -> None:
    """It may wait for capacity for hours; meanwhile a better job may come."""
    cycle = Cycle([waiting(1)], [booting("vm-a", instance_id="", running_since=None)])
    assert cycle.starts == []


def test_a_message_that_is_out_is_not_sent_again() -> None:
    """And a better job gets the next VM, not this one's message."""
    jobs = [out(1, "vm-a"), waiting(2, priority=900)]
    assert Cycle(jobs, [booting("vm-a")]).starts == []
    assert Cycle(jobs, [booting("vm-a"), booting("vm-b")]).starts == ["job-2"]


def test_who_has_a_message_out_keeps_its_place() -> None:
    """Even in a cluster that has room for one only: the message may be taken at any moment."""
    jobs = [out(1, "vm-a"), *(waiting(n, priority=900) for n in range(2, 9))]
    cycle = Cycle(jobs, [booting("vm-a")])
    assert cycle.job(1).status is S.PROVISIONING
    assert cycle.job(1).offer is not None


def test_a_message_whose_vm_died_is_sent_again_for_the_next_vm() -> None:
    """Under another id, once it is known not to be out any more."""
    assert Cycle([out(1, "vm-a")], [booting("vm-b")]).starts == []
    cycle = Cycle([out(1, "vm-a")], [booting("vm-b")], recalled={"lease-1": ()})
    assert cycle.starts == ["job-1"]
    offer = cycle.job().offer
    assert offer is not None
    assert offer.vm_uid == "uid-vm-b"
    assert offer.lease_id != "lease-1"


@pytest.mark.parametrize(
    ("facts", "again"),
    [
        ({}, False),
        ({"stopped_at": at(5)}, True),
        ({"running_since": None}, True),
    ],
)
def test_nobody_else_gets_it_while_its_vm_may_work_on_it(
    facts: dict[str, object], again: bool
) -> None:
    """A VM that is being deleted was up: only once it is seen off can it not have the message."""
    dying = vm("vm-a", V.DELETING, boot_nonce="", **{"running_since": at(0), **facts})  # type: ignore[arg-type]
    cycle = Cycle([out(1, "vm-a")], [dying, booting("vm-b")], recalled={"lease-1": ()})
    assert bool(cycle.starts) is again


@pytest.mark.parametrize(
    ("suspect", "again"),
    [
        (booting("vm-c"), False),
        (busy("vm-c", 9), True),
        (booting("vm-c", stopped_at=at(5)), True),
        (vm("vm-c", V.GONE, gone_at=at(5)), True),
        (vm("vm-d"), True),
    ],
)
def test_nobody_else_gets_it_while_another_may_have_taken_it(suspect: Vm, again: bool) -> None:
    """It was not found: a VM that was up then and has not spoken may have it."""
    vms, recalled = [suspect, booting("vm-b")], {"lease-1": ("uid-vm-c",)}
    jobs = [out(1, "vm-a")]
    assert ("job-1" in Cycle(jobs, vms, recalled=recalled).starts) is again


@pytest.mark.parametrize("whose", [{"user_id": "ada"}, {"tenant_id": "red"}])
def test_two_jobs_with_one_id_are_never_out_together(whose: dict[str, str]) -> None:
    """A v1 stop names no user and no tenant. The later waits and says so; on other clusters it
    would not."""
    jobs = [taken(1, "vm-a", job_id="x"), job(2, workflow="train", job_id="x", **whose)]
    cycle = Cycle(jobs, [busy("vm-a"), booting("vm-b")])
    assert cycle.starts == []
    assert cycle.job(2).status is S.QUEUED
    assert "another job x" in cycle.reasons["job-uid-0002"]


def test_of_two_new_jobs_with_one_id_one_is_admitted() -> None:
    """Also if they are of two v1 clusters: the stop subscription is one for all."""
    jobs = [
        job(1, workflow="train", job_id="x", user_id="bob"),
        job(2, workflow="train", job_id="x", user_id="ada", cluster="2xl4"),
    ]
    cycle = Cycle(jobs, [], v1=frozenset({"1xl4", "2xl4"}))
    assert [cycle.job(n).status for n in (1, 2)] == [S.PROVISIONING, S.QUEUED]


# --- claims ------------------------------------------------------------------------------


def test_found_vm_binds_job_and_vm() -> None:
    """PROVISIONING → ASSIGNED, one attempt older, in one atomic batch with the VM's lease."""
    cycle = Cycle([out(1, "vm-a")], [booting("vm-a")], said(B.FOUND_VM, "vm-a"))
    held, on = cycle.job(), cycle.vm("vm-a")
    assert (held.status, held.attempt, held.offer) == (S.ASSIGNED, 1, None)
    assert held.lease is not None
    assert held.lease.lease_id == "lease-1"
    assert (on.state, on.leases, on.speaks_v1) == (V.READY, ("lease-1",), True)
    assert held.deadline_at == at(RULES.timers.start_timeout_s)


def test_the_road_of_a_v1_job() -> None:
    """STARTING is not used; the VM has a moment to delete itself."""
    heartbeats = [said(status, "vm-a") for status in (B.FOUND_VM, B.RUNNING, B.COMPLETED)]
    cycle = Cycle([out(1, "vm-a")], [booting("vm-a")], *heartbeats)
    assert [after.status for _, after in cycle.plan.moves] == [S.ASSIGNED, S.RUNNING, S.SUCCEEDED]
    on = cycle.vm("vm-a")
    assert (on.state, on.leases) == (V.DRAINING, ())
    assert on.kept_until == at(V1_LEAST_S["stop_margin_s"])


def test_vms_that_took_each_others_messages_change_places() -> None:
    """The message that is left belongs to the VM that is left: nothing is sent again."""
    jobs = [out(1, "vm-a"), out(2, "vm-b")]
    cycle = Cycle(jobs, [booting("vm-a"), booting("vm-b")], said(B.FOUND_VM, "vm-b", 1))
    assert cycle.starts == []
    left = cycle.job(2).offer
    assert left is not None
    assert (left.vm_uid, left.lease_id) == ("uid-vm-a", "lease-2")
    assert cycle.place() == "vm-b"


@pytest.mark.parametrize(
    ("status", "ends"),
    [
        (B.RUNNING, S.RUNNING),
        (B.COMPLETED, S.SUCCEEDED),
        (B.FAILED, S.FAILED),
        ("wf-train-load-start", S.ASSIGNED),
    ],
)
def test_a_claim_whose_first_words_were_lost_counts(status: HeartbeatStatus | str, ends: S) -> None:
    """Any word about the job from a VM without a job is a claim."""
    cycle = Cycle([out(1, "vm-a")], [booting("vm-a")], said(status, "vm-a"))
    assert cycle.job().status is ends


def test_a_message_that_was_given_up_and_taken_all_the_same_counts() -> None:
    """It was taken just before it could be taken back."""
    cycle = Cycle([waiting(1)], [booting("vm-a")], said(B.FOUND_VM, "vm-a"))
    assert cycle.job().status is S.ASSIGNED
    assert cycle.starts == []


def test_the_first_claim_wins_and_the_loser_goes_without_a_stop() -> None:
    """A stop would find the winner: it has the same job id. The loser's VM is deleted."""
    cycle = Cycle([taken(1, "vm-a")], [busy("vm-a"), booting("vm-b")], said(B.FOUND_VM, "vm-b"))
    assert cycle.vm("vm-b").state is V.DELETING
    assert cycle.stops == []
    assert cycle.place() == "vm-a"


@pytest.mark.parametrize("status", [B.FOUND_VM, B.RUNNING])
def test_a_worker_that_took_a_job_that_is_over_is_stopped_and_removed(
    status: HeartbeatStatus,
) -> None:
    """E.g. cancelled while its start message was out."""
    cycle = Cycle([], [booting("vm-a")], said(status, "vm-a"))
    assert cycle.vm("vm-a").state is V.DELETING
    assert [(stop.job_id, stop.vm_name) for stop in cycle.stops] == [("job-1", "vm-a")]


def test_it_is_told_once() -> None:
    """Every 10 s another stop would crowd out those of others."""
    cycle = Cycle([], [booting("vm-a")], *(said(B.RUNNING, "vm-a") for _ in range(5)))
    assert len(cycle.stops) == 1


def test_another_users_job_with_that_id_is_not_touched() -> None:
    """(user, job id) is the job; a worker that sends no user speaks for user 0."""
    cycle = Cycle(
        [taken(1, "vm-a", user_id="ada")], [busy("vm-a"), booting("vm-b")], said(B.RUNNING, "vm-b")
    )
    assert cycle.job().status is S.ASSIGNED
    assert cycle.vm("vm-b").state is V.DELETING
    assert cycle.stops == []


def test_a_claim_by_a_vm_that_goes_binds_nothing_but_is_remembered() -> None:
    """Its end is what the job waits for, whichever VM its message was sent for."""
    dying = vm("vm-b", V.DELETING, boot_nonce="", running_since=at(0))
    cycle = Cycle([out(1, "vm-a")], [booting("vm-a"), dying], said(B.FOUND_VM, "vm-b"))
    offer = cycle.job().offer
    assert cycle.job().status is S.PROVISIONING
    assert offer is not None
    assert offer.vm_uid == "uid-vm-b"
    assert cycle.starts == []


# --- the end -----------------------------------------------------------------------------


def test_failure_has_no_exit_code_of_its_own() -> None:
    """v1 tells that, not how. The user's retries are what is spent."""
    cycle = Cycle([taken(1, "vm-a", E.STARTED, retries=1)], [busy("vm-a")], said(B.FAILED, "vm-a"))
    assert (cycle.job().status, cycle.job().failures) == (S.QUEUED, 1)
    assert cycle.vm("vm-a").state is V.DRAINING


def test_stopped_ends_a_job_that_is_stopping() -> None:
    """CANCELLED, and the VM has its moment."""
    stopping = taken(1, "vm-a", E.STARTED, E.STOP_ASKED)
    cycle = Cycle([stopping], [busy("vm-a")], said(B.STOPPED, "vm-a"))
    assert cycle.job().status is S.CANCELLED
    assert cycle.vm("vm-a").kept_until is not None


def test_stopped_without_being_asked_runs_again() -> None:
    """Somebody put a stop on the topic by hand, or an old one was left: no failure of the job."""
    cycle = Cycle([taken(1, "vm-a", E.STARTED)], [busy("vm-a")], said(B.STOPPED, "vm-a"))
    assert (cycle.job().losses, cycle.job().lease) == (1, None)
    assert cycle.vm("vm-a").state is V.DELETING


def test_keep_alive_has_an_owner_and_an_end() -> None:
    """Its words are the ones that people see; repeats and late heartbeats change nothing."""
    held = taken(1, "vm-a", E.STARTED, keep_alive=True, user_id="ada")
    late = said(B.RUNNING, "vm-a", user_id="ada")
    cycle = Cycle([held], [busy("vm-a")], said(B.COMPLETED, "vm-a", user_id="ada"), late)
    on = cycle.vm("vm-a")
    assert (on.state, on.kept_until) == (V.DRAINING, at(RULES.timers.keep_alive_s))
    assert on.reason.startswith(
        "kept for ada until 2026-01-02 12:00:00 UTC (keep_alive of job job-1"
    )
    assert cycle.stops == []


def test_a_retry_does_not_keep_the_vm() -> None:
    """Else every attempt would leave a VM for a day."""
    held = taken(1, "vm-a", E.STARTED, keep_alive=True, retries=3)
    cycle = Cycle([held], [busy("vm-a")], said(B.FAILED, "vm-a"))
    assert cycle.vm("vm-a").kept_until == at(V1_LEAST_S["stop_margin_s"])


def test_progress_notes_land_on_the_timeline() -> None:
    """With their data, once per message, without a change of state."""
    note = said("wf-train-load-finish", "vm-a", note={"timestamp": "t", "elapsed_time_s": "2.5"})
    cycle = Cycle([taken(1, "vm-a", E.STARTED)], [busy("vm-a")], note, plan=False)
    (entry,) = [c.entry for u in cycle.plan.batches for c in u if isinstance(c, JobNote)]
    assert (entry.event, entry.data["elapsed_time_s"]) == ("wf-train-load-finish", "2.5")
    assert entry.dedup_key == f"note-{note.message_id}"
    assert cycle.job().status is S.RUNNING


# --- silence and deadlines ---------------------------------------------------------------


def test_a_silent_v1_vm_keeps_its_job_until_it_is_gone() -> None:
    """v1 workers freeze nothing: the VM is deleted at once, the job waits for its end."""
    held, on = taken(1, "vm-a", E.STARTED), busy("vm-a")
    cycle = Cycle([held], [on], plan=False)
    silence = Silence((on,))
    lose_vms(cycle.plan, silence)
    requeue_lost(cycle.plan, silence)
    assert cycle.vm("vm-a").state is V.DELETING
    assert cycle.job().status is S.RUNNING
    gone = replace(on, state=V.GONE, gone_at=at(9), version=2)
    later = Cycle([held], [gone], plan=False)
    requeue_lost(later.plan, Silence(()))
    assert (later.job().status, later.job().losses) == (S.QUEUED, 1)


def test_a_worker_that_never_runs_its_job_is_given_up_without_a_stop() -> None:
    """A stop that its VM does not live to see would end the next attempt."""
    held = replace(taken(1, "vm-a"), deadline_at=at(-1))
    cycle = Cycle([held], [busy("vm-a")], plan=False)
    meet_deadlines(cycle.plan, bus_steady=True)
    assert cycle.vm("vm-a").state is V.DELETING
    assert cycle.vm("vm-a").reason == "its v1 worker did not begin to run the job in time"
    assert cycle.stops == []
    assert cycle.job().status is S.ASSIGNED


# --- spans of time that fit ----------------------------------------------------------------

IMPATIENT = Timers(lost_after_s=20, boot_timeout_s=60, start_timeout_s=60, stop_margin_s=5)


def test_v1_workers_get_the_time_they_need() -> None:
    """However impatient the configuration is; longer spans of it stay as they are."""
    theirs = IMPATIENT.of_worker("v1")
    assert {name: getattr(theirs, name) for name in V1_LEAST_S} == V1_LEAST_S
    assert (theirs.lost_after_s, theirs.boot_timeout_s) == (90, 300)
    assert IMPATIENT.of_worker("v2") is IMPATIENT
    assert Timers(boot_timeout_s=900).of_worker("v1").boot_timeout_s == 900


def test_deadlines_of_a_v1_job_are_those_of_its_worker() -> None:
    """It has 180 s from FOUND_VM to RUNNING, and a minute over its grace to stop."""
    rules = replace(RULES, timers=IMPATIENT, v1_clusters=V1)
    lease = Lease("lease-1", "vm-a", "uid-vm-a", "us-central1", "z", (0,))
    found = advance(waiting(1), E.FOUND_BY_V1, at(0), rules, facts=EventFacts(lease=lease))
    assert found.deadline_at == at(180)
    stopping = advance(found, E.STOP_ASKED, at(0), rules)
    assert stopping.deadline_at == at(found.spec.stop_grace_s + 60)
    elsewhere = replace(found, cluster="1xt4")
    assert advance(elsewhere, E.STOP_ASKED, at(0), rules).deadline_at == at(
        found.spec.stop_grace_s + 5
    )


def test_start_that_the_bus_refuses_ends_a_v1_job() -> None:
    """Else VM after VM would come up, find nothing to do and delete itself."""
    snap = snapshot((out(1, "vm-a"),), (booting("vm-a"),))
    plan = PlanBuilder(snap, RULES, lambda _: OutMessage("topic", b""))
    end_refused(plan, {"lease-1": "the bus refuses its start message: too long (outbox-7)"})
    ended = plan.jobs["job-uid-0001"]
    assert (ended.status, ended.offer) == (S.FAILED, None)
    assert "outbox-7" in ended.reason
