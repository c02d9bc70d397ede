"""One cycle's decisions about jobs: the steps and their order. Pure: a plan builder in, steps
out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from core.changes import PendingReason, Snapshot
from core.cluster import ClusterSpec
from core.job import Job, S
from core.ports import Ids
from core.remaining import DeadlineSlack, RunTimes
from core.supply import CapacityPolicy
from core.tenants import machines_of
from core.timers import Timers
from scheduler.admission.admit import Admission, AdmissionContext, ClusterQueue, admit, set_aside
from scheduler.admission.pending_reasons import explain
from scheduler.cycle.dependencies import release
from scheduler.cycle.lost_vms import end_refused, lose_vms, meet_deadlines, requeue_lost
from scheduler.cycle.reroute_blocked import fall_back
from scheduler.cycle.reroute_deadline import leave_spot
from scheduler.cycle.silence import Silence
from scheduler.cycle.unhealthy_vms import drain_unhealthy
from scheduler.forecast.run_times import Guess, predicted_s, unknown
from scheduler.placement.elastic import Left, bending, late_gangs, resize
from scheduler.placement.elastic_sizes import tell_sizes
from scheduler.placement.gang import settle_gangs
from scheduler.placement.gang_placement import end_holds
from scheduler.placement.simulation_results import Answers
from scheduler.placement.single import place
from scheduler.placement.slots import Slots
from scheduler.plan_builder import PlanBuilder
from scheduler.preemption.preempt import HEADS, PreemptionContext, SavedAt, make_room, never_saved
from scheduler.queue.budgets import BudgetStatus
from scheduler.queue.fair_share import shares_of, usage_after
from scheduler.queue.quotas import Quotas
from scheduler.v1.offers import held_ids


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the plan must know besides the rows."""

    clusters: Mapping[str, ClusterSpec]
    silence: Silence
    bus_steady: bool
    budgets: BudgetStatus = field(default_factory=BudgetStatus)
    typical_run_s: float = CapacityPolicy().typical_run_s
    price_band: float = CapacityPolicy().price_band
    guess: Callable[[Job], Guess] = unknown
    """How long a job runs, from what ran before."""
    saved_at: SavedAt = never_saved
    """When a job last saved its work."""
    answers: Answers = field(default_factory=Answers)
    """What came of the last simulations; kept from cycle to cycle."""
    deaf: frozenset[str] = frozenset()
    """Clusters whose workers could not be told anything of late."""
    unsent: frozenset[str] = frozenset()
    """VMs that an order did not reach of late: the bus refuses what it says."""
    refused_starts: Mapping[str, str] = field(default_factory=dict)
    """Lease of each start message that was not sent, for what it says or for its secrets → why."""
    withheld: frozenset[str] = frozenset()
    """Leases whose start waits, or waited of late, for its secrets."""

    def deadline_slack(self, timers: Timers) -> DeadlineSlack:
        """What is known of how long jobs run, and what one that has time may pay."""
        runs = RunTimes(
            timers.max_runtime_s, self.typical_run_s, lambda job: predicted_s(self.guess(job))
        )
        return DeadlineSlack(runs, self.price_band)


def plan_jobs(
    plan: PlanBuilder, snapshot: Snapshot, around: Circumstances, ids: Ids
) -> list[PendingReason]:
    """All steps of a cycle, in order; returns the news about why jobs wait."""
    plan.deadline_slack = around.deadline_slack(plan.rules.timers)
    lose_vms(plan, around.silence)
    end_refused(plan, around.refused_starts)
    requeue_lost(plan, around.silence)
    meet_deadlines(plan, around.bus_steady, around.deaf, around.unsent, around.withheld)
    drain_unhealthy(plan, snapshot)
    release(plan, snapshot)
    settle_gangs(plan)
    leave_spot(plan, snapshot, around.clusters)
    fall_back(plan, snapshot, around.clusters)
    around.budgets.hold_back(plan)
    admissions = run_queue(plan, snapshot, around, ids)
    plan.admitted = {name: done.admitted for name, done in admissions.items()}
    end_holds(plan, around.clusters, snapshot.blocks)
    tell_sizes(plan)
    plan.wait_notes += around.answers.notes.take(plan.now)
    return explain(plan, snapshot, around.clusters, around.budgets, admissions, around.answers)


def run_queue(
    plan: PlanBuilder, snapshot: Snapshot, around: Circumstances, ids: Ids
) -> dict[str, Admission]:
    """Cluster by cluster: who counts as demand, and who gets a VM at once."""
    now, ahead_s = snapshot.now, around.typical_run_s
    census = plan.active.census.after(plan.moves)
    usage = usage_after(snapshot.usage, plan.charges)
    shares = shares_of(snapshot.tenants, usage, census, now, plan.rules.queue, ahead_s)
    flexible = bending(plan)
    joining = {m.uid for jobs in flexible.values() for job in jobs for m in job.waiting}
    queues = {
        name: [job for job in jobs if job.uid not in joining and not job.is_backing_off(now)]
        for name, jobs in plan.waiting_by_cluster().items()
    }
    admitted = (j for jobs in queues.values() for j in jobs if j.status is S.PROVISIONING)
    machines = machines_of(around.clusters.values())
    quotas = Quotas(snapshot.tenants, machines, census.holding, admitted)
    context = AdmissionContext(
        plan=plan,
        shares=shares,
        quotas=quotas,
        leased=census.leased,
        blocks=snapshot.blocks,
        guess=around.guess,
        made=around.answers.still_made(plan),
        v1_ids=held_ids(plan, around.clusters),
    )
    admissions: dict[str, Admission] = {}
    served: set[str] = set()
    free = {name: around.budgets.free(jobs) for name, jobs in queues.items()}
    first = set_aside(plan, around.clusters, free, quotas)
    # Clusters with a job whose part of a quota is set aside are served first, so that no other
    # cluster waits on them.
    for name, spec in sorted(around.clusters.items(), key=lambda item: item[0] not in first):
        waiting, elastic = free.get(name, ()), flexible.get(name, ())
        if not waiting and not elastic:
            continue
        more = HEADS + sum(len(job.extra) for job in elastic)
        done = admit(context, ClusterQueue(spec, waiting, more))
        slots = place(plan, spec, ids, done.admitted, done.held_room, done.kept)
        admissions[name] = done
        if elastic and done.room is not None:
            left = Left(
                done.room,
                slots or Slots(plan, spec),
                quotas,
                done.short,
                late_gangs(plan, done.admitted),
                snapshot.blocks,
                around.budgets.held,
            )
            served |= resize(plan, spec, elastic, left, ids)
    ask = PreemptionContext(
        shares, snapshot.tenants, around.saved_at, around.answers, frozenset(served)
    )
    make_room(plan, around.clusters, admissions, ask)
    return admissions
