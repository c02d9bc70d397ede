"""The one way in for a job, whichever door it came through."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.capacity import ClusterSpec
from core.changes import NewJob, Unit
from core.errors import BadInput, Conflict, Fault, ZenError
from core.job import Job, JobEvent, JobSpec, entry_for, new_job
from core.ports import Clock, Ids
from core.submission import content_hash, parse_submission, shown
from core.timers import Timers
from scheduler.choice import Choice, choose_cluster

Writer = Callable[[Unit], Awaitable[str | None]]
"""Writes one unit durably; the refusal's text if a guard said no."""
Clusters = Callable[[], Sequence[ClusterSpec]]
"""The clusters as configured right now: operators edit them while we run."""

KEY_CHARS_MAX = 255
DEPTH_MAX = 32
_TOO_DEEP = (f"more than {DEPTH_MAX} levels", f"at most {DEPTH_MAX} levels of nesting")
_FRESH_ID_TRIES = 5
_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Known(Protocol):
    """What a submission asks the store when somebody was there before it."""

    async def find_job(self, job_id: str, user_id: str | None) -> Job: ...
    async def content_hash(self, user_id: str, job_id: str) -> tuple[str, str] | None: ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """The job is stored. A repeat of the submission gets an equal answer."""

    job_id: str
    user_id: str
    cluster: str
    message: str


class Submissions:
    """Checks a submission, chooses its cluster, and writes it once."""

    def __init__(
        self,
        write: Writer,
        store: Known,
        clusters: Clusters,
        timers: Timers,
        clock: Clock,
        ids: Ids,
        *,
        on_new: Callable[[Job], None] | None = None,
    ) -> None:
        self._write = write
        self._store = store
        self._clusters = clusters
        self._timers = timers
        self._clock = clock
        self._ids = ids
        self._on_new = on_new

    async def submit(self, data: object, *, idempotency_key: str | None) -> Accepted:
        """BadInput with every fault; Conflict when the id is taken by other content."""
        refuse_unstorable(data)
        if idempotency_key is not None:
            return await self._try(data, key_job_id(idempotency_key))
        for _ in range(_FRESH_ID_TRIES - 1):
            try:
                return await self._try(data, None)
            except _FreshIdTaken:
                continue
        return await self._try(data, None)

    async def _try(self, data: object, key_id: str | None) -> Accepted:
        now = self._clock.now()
        uid = self._ids.uid(now)
        spec = parse_submission(data, self._timers, key_id or readable_id(uid))
        digest = content_hash(spec)
        fresh = key_id is None and not _brings_id(data)
        try:
            choice = choose_cluster(spec, self._clusters())
        except BadInput:
            # The configuration may have lost the cluster since: a repeat still gets its answer.
            stored = await self._stored(spec) if not fresh else None
            if stored is None:
                raise
            return await self._answer_again(spec, digest, stored, None)
        job = new_job(uid, spec, choice.cluster, now, reason=choice.reason)
        entry = entry_for(None, job, JobEvent.SUBMITTED, cluster=choice.cluster)
        refusal = await self._write((NewJob(job, entry, digest),))
        if refusal is None:
            if self._on_new is not None:
                self._on_new(job)
            return _accepted(spec, choice)
        stored = await self._stored(spec)
        if stored is None:
            raise NotStored(f"job {spec.job_id} of user {spec.user_id}: {refusal}")
        if fresh:
            raise _FreshIdTaken(f"job id {spec.job_id} was just taken; submit again")
        return await self._answer_again(spec, digest, stored, choice)

    async def _stored(self, spec: JobSpec) -> str | None:
        """The content hash of the job that has this id already."""
        known = await self._store.content_hash(spec.user_id, spec.job_id)
        return None if known is None else known[1]

    async def _answer_again(
        self, spec: JobSpec, digest: str, stored_digest: str, choice: Choice | None
    ) -> Accepted:
        """The first answer once more, or Conflict if the first submission was another one."""
        if stored_digest != digest:
            raise Conflict(
                f"job {spec.job_id} of user {spec.user_id} exists with other content: "
                f"take another job_id, or submit exactly the same again"
            )
        job = await self._store.find_job(spec.job_id, spec.user_id)
        if choice is None or choice.cluster != job.cluster:
            choice = Choice(job.cluster, "chosen when the job was first submitted")
        return _accepted(spec, choice)


class NotStored(ZenError):
    """The store refused a job that nobody had submitted before: a fault of ours."""

    code = "not_stored"


class _FreshIdTaken(Conflict):
    """Dice fell the same way twice: throw again."""


def readable_id(uid: str) -> str:
    """A job id of ten characters from the random end of a uid: 50 bits, none look alike."""
    bits = uuid.UUID(uid).int
    letters = [_ID_ALPHABET[(bits >> shift) & 31] for shift in range(0, 50, 5)]
    return "j-" + "".join(letters)


def key_job_id(key: str) -> str:
    """The job id that belongs to an idempotency key."""
    if not key.isprintable() or not 1 <= len(key) <= KEY_CHARS_MAX:
        expected = f"1 to {KEY_CHARS_MAX} printable characters"
        raise BadInput([Fault("Idempotency-Key", shown(key), expected)])
    return "k-" + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:24]


def refuse_unstorable(data: object) -> None:
    """BadInput for values that no database text can hold, wherever they hide.

    Walks without recursion: the depth of a body is the sender's choice.
    """
    if _unstorable_within(data) is None:
        return
    tops = data if isinstance(data, Mapping) else {"body": data}
    faults = []
    for name, top in tops.items():
        fault = _unstorable(name) or _unstorable_within(top)
        if fault is not None:
            faults.append(Fault(str(name)[:80].encode("ascii", "replace").decode(), *fault))
    raise BadInput(faults or [Fault("body", *_TOO_DEEP)])


def _unstorable_within(top: object) -> tuple[str, str] | None:
    """(what came, what was expected), level by level; this runs for every submission."""
    level = [top]
    for _ in range(DEPTH_MAX):
        below: list[object] = []
        for value in level:
            if isinstance(value, str | float):  # first: most values are text
                if (fault := _unstorable(value)) is not None:
                    return fault
            elif isinstance(value, list):
                below += value
            elif isinstance(value, Mapping):
                below += value.keys()
                below += value.values()
        if not below:
            return None
        level = below
    return _TOO_DEEP


def _unstorable(value: object) -> tuple[str, str] | None:
    if isinstance(value, str):
        if "\0" in value:
            return (shown(value), "text without NUL characters")
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return ("text with half a character in it", "text that is valid Unicode")
    elif isinstance(value, float) and not math.isfinite(value):
        return (str(value), "a finite number")
    return None


def _brings_id(data: object) -> bool:
    return isinstance(data, Mapping) and data.get("job_id") is not None


def _accepted(spec: JobSpec, choice: Choice) -> Accepted:
    return Accepted(
        job_id=spec.job_id,
        user_id=spec.user_id,
        cluster=choice.cluster,
        message=f"queued for cluster {choice.cluster}: {choice.reason}",
    )
