"""Holds and groups in memory: what db/dependencies.py and db/groups.py ask, as dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from core.commit_writes import Writes
from core.groups import GroupKey, Wait, bad_end
from core.job import Job, JobStatus, group_of

Find = Callable[[str], Job | None]


@dataclass(slots=True)
class WaitRecord:
    """One thing that a hold waits for, and how it ended."""

    wait: Wait
    over: bool = False
    bad: str | None = None


@dataclass(slots=True)
class Dependencies:
    """Who waits for whom, and who belongs together."""

    waits: dict[str, list[WaitRecord]] = field(default_factory=dict)
    """By hold."""
    waiters: dict[str | GroupKey, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Uid or group → the holds that wait for it."""
    blocked: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Hold → the jobs behind it."""
    ready: set[str] = field(default_factory=set)
    gangs: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """Gang → rank → member."""
    groups: dict[GroupKey, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """Its jobs, oldest first."""

    def index(self, job: Job, before: Job | None = None) -> None:
        """The job as it is from now on."""
        if before is None and job.gang is not None:
            self.gangs[job.gang.uid][job.gang.rank] = job.uid
        if before is None and (group := group_of(job.spec)) is not None:
            self.groups[group][job.uid] = None
        if before is not None and before.blocked is not None:
            self.blocked[before.blocked].discard(job.uid)
        if job.blocked is not None:
            self.blocked[job.blocked].add(job.uid)

    def apply(self, writes: Writes, find: Find) -> None:
        """After the jobs themselves."""
        for dependency, wait in writes.waits:
            self.waits.setdefault(dependency, []).append(WaitRecord(wait))
            self.waiters[wait.uid or wait.group or ""].add(dependency)
        touched = {dependency for dependency, _ in writes.waits}
        for job in writes.ended.values():
            touched |= self.waiters.get(job.uid, set())
            if (group := group_of(job.spec)) is not None:
                touched |= self.waiters.get(group, set())
        for dependency in touched & self.waits.keys():
            self._look(dependency, find)
        for dependency in writes.unblocked:
            if not self.blocked[dependency]:
                self._drop(dependency)

    def released(self, limit: int) -> Iterator[str]:
        """Jobs behind holds that are over."""
        for dependency in sorted(self.ready)[:limit]:
            yield from sorted(self.blocked[dependency])

    def verdicts(self, limit: int) -> Mapping[str, str | None]:
        return {dependency: self._verdict(dependency) for dependency in sorted(self.ready)[:limit]}

    def _look(self, dependency: str, find: Find) -> None:
        for record in self.waits[dependency]:
            if not record.over:
                record.over, record.bad = self._end(record.wait, find)
        records = self.waits[dependency]
        if any(r.bad for r in records) or all(r.over for r in records):
            self.ready.add(dependency)

    def _end(self, wait: Wait, find: Find) -> tuple[bool, str | None]:
        if wait.uid is not None:
            uids = [wait.uid]
        else:
            uids = list(self.groups.get(wait.group, ())) if wait.group is not None else []
        jobs = [job for uid in uids if (job := find(uid)) is not None]
        if any(not job.status.final for job in jobs):
            return False, None
        worst = max((j.status for j in jobs if j.status is not JobStatus.SUCCEEDED), default=None)
        return True, str(worst) if worst is not None and wait.after.good_only else None

    def _verdict(self, dependency: str) -> str | None:
        bad = [r for r in sorted(self.waits[dependency], key=lambda r: r.wait.after.needs) if r.bad]
        if not bad:
            return None
        first = bad[0]
        grouped = first.wait.group is not None
        return bad_end(first.wait.after.needs, first.bad or "", group=grouped)

    def _drop(self, dependency: str) -> None:
        for record in self.waits.pop(dependency, ()):
            self.waiters[record.wait.uid or record.wait.group or ""].discard(dependency)
        self.ready.discard(dependency)
        del self.blocked[dependency]
