"""One turn's decisions about jobs: the steps and their order. Pure: a draft in, steps out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.capacity import ClusterSpec
from core.changes import JobWhy, View
from core.job import S
from core.knowledge import CapacityPolicy
from core.ports import Ids
from core.tenants import machines_of
from scheduler.budgets import Standing
from scheduler.draft import Draft
from scheduler.fallback import fall_back
from scheduler.losses import lose_vms, meet_deadlines, requeue_lost
from scheduler.queue.admit import Admission, admit
from scheduler.queue.fit import place
from scheduler.queue.gang import couple
from scheduler.queue.holds import release
from scheduler.queue.muster import end_holds
from scheduler.queue.order import waiting_by_cluster
from scheduler.queue.quota import Quotas
from scheduler.queue.shares import Census, shares_of, take_census
from scheduler.queue.why import explain
from scheduler.reroute import leave_spot
from scheduler.sick import retire_sick
from scheduler.silence import Silence


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the plan must know besides the rows."""

    clusters: Mapping[str, ClusterSpec]
    silence: Silence
    bus_steady: bool
    budgets: Standing = field(default_factory=Standing)
    typical_run_s: float = CapacityPolicy().typical_run_s
    census: Census | None = None
    """Of the jobs of the view, if somebody has taken it already."""


def plan_jobs(draft: Draft, view: View, around: Circumstances, ids: Ids) -> list[JobWhy]:
    """All steps of a turn, in order; returns the news about why jobs wait."""
    lose_vms(draft, around.silence)
    requeue_lost(draft, around.silence)
    meet_deadlines(draft, around.bus_steady)
    retire_sick(draft, view)
    release(draft, view)
    couple(draft)
    leave_spot(draft, view, around.clusters, around.typical_run_s)
    fall_back(draft, view, around.clusters)
    around.budgets.hold_back(draft)
    admissions = run_queue(draft, view, around, ids)
    end_holds(draft, around.clusters, view.troubles)
    return explain(draft, view, around.clusters, around.budgets, admissions)


def run_queue(draft: Draft, view: View, around: Circumstances, ids: Ids) -> dict[str, Admission]:
    """Cluster by cluster: who counts as demand, and who gets a VM at once."""
    now, ahead_s = view.now, around.typical_run_s
    census = around.census.after(draft.moves) if around.census else take_census(draft.jobs.values())
    shares = shares_of(view.tenants, view.usage, census, now, draft.rules.queue, ahead_s)
    queues = waiting_by_cluster(draft.jobs.values())
    admitted = (j for jobs in queues.values() for j in jobs if j.status is S.PROVISIONING)
    machines = machines_of(around.clusters.values())
    quotas = Quotas(view.tenants, machines, census.holding, admitted)
    admissions: dict[str, Admission] = {}
    for name, spec in around.clusters.items():
        waiting = around.budgets.free(queues.get(name, ()))
        if waiting:
            leased = census.leased[name]
            done = admit(draft, spec, waiting, leased, shares, quotas, view.troubles)
            place(draft, spec, ids, done.admitted)
            admissions[name] = done
    return admissions
