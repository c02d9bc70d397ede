"""The configuration in force, while we run: the file is watched, an edit is judged and recorded,
and every replica adopts what was recorded last.

The newest version in the database is the one truth. A file is only a proposal, made when it
changes, whether or not anybody is awake then: what each file said when it was last considered is
kept beside the versions. So a replica whose file lags behind, or a file that was rolled back from,
changes nothing, and one that was set back to something older does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import structlog

from config.errors import ConfigError
from config.reload import (
    CandidateConfig,
    Reader,
    busy_faults,
    merged,
    removed_clusters,
    restart_faults,
)
from config.settings import Settings
from config.watch import ConfigFile, FileLook
from core.alerts import CONFIG_NOT_ADOPTED, CONFIG_REFUSED, AlertKind
from core.audit_log import Actor
from core.changes import Change
from core.configuration import ConfigVersion, ConfigVersions, FileSeen
from core.errors import Fault, StoreDown
from core.ports import Clock, Store

log = structlog.get_logger("config")
LOOK_S = 0.2
"""Twice the same content before it is believed: an editor may be in the middle of writing."""
ASK_S = 1.0
"""How long a version that another replica recorded may wait for us."""
REPEAT_S = 60.0
"""An alert that stands is raised again: another replica with a good file may have cleared it."""
TRIES = 5
FAULTS_SHOWN = 20


class FileStatus(StrEnum):
    """What became of this replica's file."""

    UNREAD = "not looked at yet"
    IN_FORCE = "in force"
    DIFFERS = "differs"
    """Another version is in force: one of another replica's file, or a rollback."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FileReport:
    """This replica's file beside what is in force."""

    path: str
    standing: FileStatus = FileStatus.UNREAD
    faults: tuple[Fault, ...] = ()
    diff: tuple[str, ...] = ()
    """What the file would change."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a document would change, and why it would be refused."""

    diff: tuple[str, ...]
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Rolled:
    """After a rollback: what is in force, and whether anything changed."""

    version: ConfigVersion
    changed: bool


@dataclass(frozen=True, slots=True)
class ConfigParts:
    """What live configuration stands on."""

    reader: Reader
    started: CandidateConfig
    """What this process was started with."""
    file: ConfigFile
    versions: ConfigVersions
    look_s: float = LOOK_S
    host: str = ""
    """Whose file it is: another machine may have another one at the same path."""


@dataclass(frozen=True, slots=True)
class RolledBy:
    """Who rolls back to which version."""

    number: int
    actor: Actor


class LiveConfig:
    """`apply` gets settings that are whole and checked, in one call, never while it is waiting."""

    def __init__(
        self,
        parts: ConfigParts,
        store: Store,
        clock: Clock,
        holder: str,
        apply: Callable[[Settings], None],
    ) -> None:
        self._parts, self._store, self._clock = parts, store, clock
        self._holder, self._apply = holder, apply
        self.versions = parts.versions
        self._lock = asyncio.Lock()
        self.synced = asyncio.Event()
        """Set once we have what is in force: nobody leads with less."""
        self.version: ConfigVersion | None = None
        self.restart: tuple[Fault, ...] = ()
        """What is in force but waits for a restart of this process."""
        self.report = FileReport(parts.file.path)
        self._current: CandidateConfig | None = None
        self._known = 0
        """The newest version that we have looked at."""
        self._asked_at: float | None = None
        self._look: FileLook | None = None
        self._candidate: CandidateConfig | ConfigError | None = None
        """What the file says, or why it says nothing."""
        self._decided = False
        self._first = True
        self._digest: str | None = None
        """Of the file's content that was last considered: accepted, or found to be old."""
        self._unreadable = ""
        self._told: dict[AlertKind, tuple[str, float]] | None = None

    async def run(self) -> None:
        """For ever, on every replica."""
        while True:
            try:
                async with self._lock:
                    await self.look()
            except StoreDown as error:
                log.warning("configuration not compared, trying again", why=str(error))
            await asyncio.sleep(self._parts.look_s)

    async def catch_up(self) -> None:
        """Returns once we have what is in force now. A replica that stood still, or could not reach
        the database, would else begin to lead by what was in force when it last looked."""
        await self.synced.wait()
        async with self._lock:
            await self._follow()

    async def look(self) -> None:
        """One look at the file and, if it is time, at the database."""
        stable = self._read_file()
        now = self._clock.monotonic()
        if self._asked_at is None or now - self._asked_at >= ASK_S:
            await self._follow()
            self._asked_at = now
        if stable and not self._decided and self.version is not None:
            await self._decide()
        await self._tell()

    # --- the file ------------------------------------------------------------------------

    def _read_file(self) -> bool:
        """Whether the file was the same twice."""
        before, self._look = self._look, self._parts.file.look()
        if self._look != before:
            self._candidate, self._decided = None, False
        return self._look == before

    def _proposal(self) -> CandidateConfig | ConfigError:
        if self._candidate is None:
            assert self._look is not None, "the file is looked at first"
            self._candidate = self._parse(self._look)
        return self._candidate

    def _parse(self, look: FileLook) -> CandidateConfig | ConfigError:
        path = self._parts.file.path
        if look.error:
            return ConfigError([Fault(path, look.error, "a file that can be read")])
        try:
            return self._parts.reader.file(look.raw, path)
        except ConfigError as error:
            return error

    async def _decide(self) -> None:
        """What the file is to us: what is in force already, old news, or a proposal."""
        await self._follow()  # a replica that watches the same file may have been faster
        path, proposal = self._parts.file.path, self._proposal()
        if isinstance(proposal, ConfigError):
            self._refuse(proposal.faults)
        elif self._same(proposal) or not await self._is_news(proposal):
            await self._considered(proposal)
            await self._follow()  # content that is known may have been recorded just now
        elif faults := await self._propose(proposal, path, self._holder, self._seen(proposal)):
            self._refuse(faults, proposal.diff(self._current))
        else:
            await self._considered(proposal)
        self._decided, self._first = True, False
        if not isinstance(proposal, ConfigError) and self._digest == proposal.digest:
            self._compare(proposal)

    def _same(self, candidate: CandidateConfig) -> bool:
        assert self.version is not None, "asked after the first answer of the database"
        return candidate.digest == self.version.digest or not candidate.diff(self._current)

    async def _is_news(self, candidate: CandidateConfig) -> bool:
        """A file that changed since it was last considered, by us or by those before us, is an
        edit, unless it only brings us nearer to what others have recorded. One that never was
        considered anywhere is news if nobody has recorded what it says."""
        versions = self._parts.versions
        if self._digest is None:
            self._digest = await versions.file_seen(self._parts.host, self._parts.file.path)
        if candidate.digest == self._digest:
            return False
        known = await versions.last_with(candidate.digest)
        if known is None or self._digest is None:
            return known is None or not self._first
        before = await versions.last_with(self._digest)
        return before is None or known < before

    async def _considered(self, candidate: CandidateConfig) -> None:
        await self._parts.versions.saw(self._seen(candidate))
        self._digest = candidate.digest

    def _seen(self, candidate: CandidateConfig) -> FileSeen:
        return FileSeen(self._parts.host, self._parts.file.path, candidate.digest)

    def _refuse(self, faults: Sequence[Fault], diff: Sequence[str] = ()) -> None:
        report = FileReport(
            self._parts.file.path, FileStatus.REFUSED, tuple(faults[:FAULTS_SHOWN]), tuple(diff)
        )
        if report != self.report:
            log.warning("configuration refused", why=[str(fault) for fault in report.faults])
        self.report = report

    def _compare(self, candidate: CandidateConfig) -> None:
        """Where an accepted file stands beside what is in force now."""
        diff = () if self._same(candidate) else candidate.diff(self._current)
        standing = FileStatus.DIFFERS if diff else FileStatus.IN_FORCE
        if diff and self.report.standing is not FileStatus.DIFFERS:
            log.warning("the file differs from what is in force", changes=list(diff))
        self.report = FileReport(self._parts.file.path, standing, diff=diff)

    # --- versions ------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Adopt what was recorded last; record what we started with if nothing ever was."""
        versions, started = self._parts.versions, self._parts.started
        number = await versions.newest_number()
        if number == 0:
            await versions.record(self._next(started, self._parts.file.path, self._holder), ())
        elif number == self._known:
            return
        newest = await versions.newest()
        if newest is not None:
            self._adopt(newest)

    def _adopt(self, version: ConfigVersion) -> None:
        """All of it in one step, or nothing: between two waits nobody sees half of it."""
        self._known = version.version
        started = self._parts.started
        try:
            candidate = self._parts.reader.stored(version.document, version.version)
            settings = merged(started, candidate)
        except ConfigError as error:
            self._unreadable = f"version {version.version} is not understood here: {error}"
            log.error("configuration not adopted", version=version.version, why=str(error))
            return
        source = f"version {version.version}"
        self.restart = tuple(restart_faults(started, candidate, source))
        self.version, self._current, self._unreadable = version, candidate, ""
        self._apply(replace(settings, version=version.version))
        self.synced.set()
        log.info("configuration in force", version=version.version, changes=list(version.diff))
        self._stand_again()

    def _stand_again(self) -> None:
        """What is in force has changed under a file that was judged before: one that was accepted
        may differ now, one that was refused may say the same now."""
        judged = self._candidate if self._decided else None
        if isinstance(judged, CandidateConfig) and (
            self.report.standing is not FileStatus.REFUSED or self._same(judged)
        ):
            self._compare(judged)

    async def _propose(
        self,
        candidate: CandidateConfig,
        source: str,
        author: str,
        seen: FileSeen | None = None,
        by: RolledBy | None = None,
    ) -> Sequence[Fault]:
        """Records and adopts it; or the reasons why not. With what its file said, in one step: a
        rollback that comes next must not be undone by the same file."""
        versions = self._parts.versions
        for _ in range(TRIES):
            if faults := await self._faults(candidate, source):
                return faults
            removed = removed_clusters(self._current, candidate)
            new = self._next(candidate, source, author)
            if by is not None:
                new = replace(new, rollback_of=by.number, actor=by.actor)
            if await versions.record(new, removed, seen):
                self._adopt(new)
                return ()
            await self._follow()  # somebody was faster, or a job came
            if self._same(candidate):
                return ()
        return [Fault(source, "edits by several at once", "one at a time: save the file again")]

    def _next(self, candidate: CandidateConfig, source: str, author: str) -> ConfigVersion:
        return ConfigVersion(
            version=self._known + 1,
            at=self._clock.now(),
            author=author,
            source=source,
            digest=candidate.digest,
            document=candidate.document,
            diff=candidate.diff(self._current) if self._current else (),
        )

    # --- what people ask -----------------------------------------------------------------

    async def judge(self, document: dict[str, object], source: str) -> Judgement:
        """What this document would change if it were the file; nothing is changed."""
        try:
            candidate = self._parts.reader.whole(document, source)
        except ConfigError as error:
            return Judgement((), tuple(error.faults[:FAULTS_SHOWN]))
        faults = await self._faults(candidate, source)
        return Judgement(candidate.diff(self._current), tuple(faults[:FAULTS_SHOWN]))

    async def _faults(self, candidate: CandidateConfig, source: str) -> list[Fault]:
        """Why it cannot be in force while this process runs."""
        removed = removed_clusters(self._current, candidate)
        busy = busy_faults(source, await self._parts.versions.jobs_in(removed))
        return [*restart_faults(self._parts.started, candidate, source), *busy]

    async def rollback(self, number: int, author: str, actor: Actor) -> Rolled:
        """A new version that says what an old one said. NotFound, or ConfigError with the reasons
        why it cannot be in force now. Repeating it changes nothing."""
        async with self._lock:
            await self._follow()
            old = await self._parts.versions.version(number)
            candidate = self._parts.reader.stored(old.document, number)
            changed = self.version is None or not self._same(candidate)
            if changed:
                source = f"rollback to version {number}"
                by = RolledBy(number, actor)
                if faults := await self._propose(candidate, source, author, by=by):
                    raise ConfigError(faults)
            assert self.version is not None, "adopted by now"
            return Rolled(self.version, changed)

    # --- telling -------------------------------------------------------------------------

    async def _tell(self) -> None:
        """Alerts that stand as long as what they say is true."""
        wanted: dict[AlertKind, str] = {}
        if self.report.standing is FileStatus.REFUSED:
            faults = "; ".join(str(fault) for fault in self.report.faults)
            wanted[CONFIG_REFUSED] = CONFIG_REFUSED.message(faults=faults)
        if self._unreadable:
            wanted[CONFIG_NOT_ADOPTED] = CONFIG_NOT_ADOPTED.message(error=self._unreadable)
        if self._told is None and not self._decided:
            return  # nothing to say yet, and nothing to take back
        told = dict(self._told or {})
        now, moment = self._clock.now(), self._clock.monotonic()
        changes: list[Change] = []
        for kind, words in wanted.items():
            before = told.get(kind)
            if before is None or before[0] != words or moment - before[1] >= REPEAT_S:
                changes.append(kind.saying(words, self._subject(kind), now))
                told[kind] = (words, moment)
        changes += [
            kind.cleared(self._subject(kind), now)
            for kind in (CONFIG_REFUSED, CONFIG_NOT_ADOPTED)
            if kind not in wanted and (kind in told or self._told is None)
        ]
        if changes:
            await self._store.commit([(change,) for change in changes], None)
        self._told = {kind: told[kind] for kind in wanted}

    def _subject(self, kind: AlertKind) -> str:
        return self._parts.file.path if kind is CONFIG_REFUSED else "zen"
