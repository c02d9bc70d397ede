"""Which waiting jobs count as demand. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.capacity import ClusterSpec, Trouble
from core.job import E, Job, S
from scheduler.draft import Draft
from scheduler.queue.gang import Teams
from scheduler.queue.muster import Regions, where
from scheduler.queue.order import ranked
from scheduler.queue.quota import Quotas
from scheduler.queue.shares import Shares
from scheduler.queue.slots import Room

DISPLACED = "another job goes first, or the limit was lowered"


@dataclass(frozen=True, slots=True)
class Admission:
    """Who has a place in one cluster."""

    admitted: Sequence[str] = ()
    """In order."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Job → the quota that it does not fit, in words."""


def admit(
    draft: Draft,
    spec: ClusterSpec,
    jobs: Sequence[Job],
    leased: int,
    shares: Shares,
    quotas: Quotas,
    troubles: Sequence[Trouble] = (),
) -> Admission:
    """The first `room` waiting jobs count as demand; one that lost its rank goes back. One that no
    region may serve any more, or that its tenant's quota forbids, has no rank: it must not hold a
    place that others could use. A gang is admitted whole, and all of it is sent to one region."""
    held = [job for job in jobs if job.status is S.PROVISIONING]
    for job in held:
        quotas.take(job, -1)
    teams = Teams(draft)
    order = ranked(jobs, spec.queue, shares)
    room = Room(draft, spec, leased)
    chosen, refused = _choose(order, spec, teams, room, quotas)
    # First those that go: the store counts what they held as free for those that come.
    for job in held:
        if job.uid not in chosen:
            lost = refused.get(job.uid, DISPLACED)
            servable = has_a_region(job, spec)
            draft.step(job, E.WITHDRAWN, lost if servable else "its regions were withdrawn")
    regions = Regions(draft, spec, troubles)
    for team in chosen.values():
        fresh = [job for job in team if job.status is S.QUEUED]
        if fresh:
            whole = len(fresh) == len(team)
            region = where(teams, regions, team) if whole else team[0].gang_region
            _admit_team(draft, spec, fresh, region, quotas)
    return Admission(tuple(chosen), refused)


def _choose(
    order: Iterable[Job], spec: ClusterSpec, teams: Teams, room: Room, quotas: Quotas
) -> tuple[dict[str, Sequence[Job]], dict[str, str]]:
    """Who gets a place: the first of each team with all of it, the others with nothing, in order;
    and whom a quota refuses, in words."""
    chosen: dict[str, Sequence[Job]] = {}
    refused: dict[str, str] = {}
    for job in order:
        team = teams.of(job)
        if team is None or job.uid in chosen or job.uid in refused:
            continue
        if not has_a_region(job, spec) or job.blocked is not None:
            continue
        short = quotas.take_all(team)
        if short is not None:
            refused.update((member.uid, short.words()) for member in team)
        elif room.take_all(member.spec for member in team):
            chosen.update((member.uid, team if member is team[0] else ()) for member in team)
        else:
            for member in team:
                quotas.take(member, -1)
            if not spec.share:
                break  # every job needs a whole VM: the next one has no room either
    return chosen, refused


def _admit_team(
    draft: Draft, spec: ClusterSpec, team: Sequence[Job], region: str | None, quotas: Quotas
) -> None:
    words = f"admitted to {spec.name}" + (f", to look for VMs in {region}" if region else "")
    with draft.together():
        for job in team:
            also = [quotas.reserve(job)]
            draft.step(job, E.ADMITTED, words, also=also, gang_region=region)


def has_a_region(job: Job, spec: ClusterSpec) -> bool:
    return any(job.spec.allows_region(region.region) for region in spec.regions)
