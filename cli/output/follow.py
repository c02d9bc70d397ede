"""Following a job: its log as it grows, over all its attempts, to the end of the job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cli.client import Client, Json, Refused, Unreachable, path
from cli.output.printing import note
from cli.output.terminal import LogFilter
from core.clock import SystemClock
from core.job_status import FINAL, WAITING

WAIT_S = 15
CHUNK_BYTES = 256 * 1024
PAUSE_S = 0.5
# A scheduler that is being restarted comes back within seconds; a longer silence is an error.
OUTAGE_MAX_S = 60.0
# The log of a VM that was lost may never be complete: do not wait for the rest for ever.
FINAL_WAIT_S = 5.0
EVENTS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of one attempt's log."""

    attempt: int
    offset: int
    next_offset: int
    done: bool
    final: bool
    data: bytes


T = TypeVar("T")
Sink = Callable[[Chunk], None]


def printer(*, raw: bool = False, to_stderr: bool = False) -> Sink:
    """Prints a job's own bytes: `raw` untouched, else without orders to the terminal; `to_stderr`
    where stdout belongs to a JSON answer."""
    stream = sys.stderr if to_stderr else sys.stdout
    filtered = (lambda data: data) if raw else LogFilter().feed

    def sink(chunk: Chunk) -> None:
        stream.flush()
        stream.buffer.write(filtered(chunk.data))
        stream.buffer.flush()

    return sink


class Follower:
    """Reads one job's logs. Rides out short outages of the API."""

    def __init__(self, api: Client, job_id: str, user: str | None) -> None:
        self._api, self._job_id, self._user = api, job_id, user
        self._clock = SystemClock()

    def job(self) -> Json:
        """The job as it is now."""
        where = path("jobs", self._job_id)
        return patiently(lambda: self._api.get(where, {"user_id": self._user}))

    def read(self, attempt: int | None, offset: int, wait_s: float) -> Chunk:
        """The next piece; `attempt` None means the newest."""
        query = {
            "user_id": self._user,
            "attempt": attempt,
            "offset": offset,
            "limit": CHUNK_BYTES,
            "wait_s": f"{wait_s:g}",
        }
        where = path("jobs", self._job_id, "logs")
        answer = patiently(lambda: self._api.call("GET", where, query=query, timeout_s=wait_s + 30))
        heads = answer.headers
        return Chunk(
            attempt=int(heads.get("Zen-Attempt") or 0),
            offset=int(heads.get("Zen-Offset") or offset),
            next_offset=int(heads.get("Zen-Next-Offset") or offset + len(answer.content)),
            done=heads.get("Zen-Done", "false").lower() == "true",
            final=heads.get("Zen-Final", "false").lower() == "true",
            data=answer.content,
        )

    def dump(self, attempt: int | None, sink: Sink, offset: int = 0) -> Chunk:
        """What there is of one attempt's log, up to now."""
        while True:
            chunk = self.read(attempt, offset, 0)
            sink(chunk)
            if not chunk.data:
                return chunk
            attempt, offset = chunk.attempt or attempt, chunk.next_offset

    def follow(
        self, sink: Sink, *, attempt: int | None = None, offset: int = 0, quiet: bool = False
    ) -> Json:
        """Every attempt's log until the job is final (or that one attempt's, if named);
        returns the job as it ended."""
        only = attempt is not None
        while True:
            if attempt is None:
                attempt = self._next_attempt(0, quiet)
            if attempt is not None:
                self._attempt(sink, attempt, offset)
            job = self.job()
            if only or job["status"] in FINAL:
                return job
            offset = 0
            if not quiet:
                note(between_attempts(job, attempt, self._end_of(attempt)))
            attempt = self._next_attempt(attempt or 0, quiet)

    def _end_of(self, attempt: int | None) -> str:
        """Why the attempt lost its place, by the event that took it: the job's own reason may be
        that of its next admission by now."""
        events = patiently(lambda: events_of(self._api, self._job_id, self._user))
        ends = [
            event["reason"]
            for event in events
            if event["attempt"] == attempt
            and event["to"] in WAITING
            and event["from"] not in (None, *WAITING)
        ]
        return str(ends[-1]) if ends else ""

    def _attempt(self, sink: Sink, attempt: int, offset: int) -> None:
        final_since: float | None = None
        while True:
            began = self._clock.monotonic()
            chunk = self.read(attempt, offset, WAIT_S if final_since is None else 0)
            if chunk.data:
                sink(chunk)
            offset = chunk.next_offset
            if chunk.done:
                return
            now = self._clock.monotonic()
            if chunk.final or self._moved_on(chunk, attempt):
                final_since = final_since if final_since is not None else now
                if now - final_since > FINAL_WAIT_S and not chunk.data:
                    return
            if not chunk.data and now - began < PAUSE_S:
                time.sleep(PAUSE_S)

    def _moved_on(self, chunk: Chunk, attempt: int) -> bool:
        """A job on a newer attempt has left this one's log as it is."""
        return not chunk.data and int(self.job().get("attempt") or 0) > attempt

    def _next_attempt(self, after: int, quiet: bool) -> int | None:
        """Waits for a newer attempt; None if the job ended without one. Tells why it waits."""
        told = ""
        while True:
            job = self.job()
            newest = int(job.get("attempt") or 0)
            if newest > after:
                return newest
            if job["status"] in FINAL:
                return None
            why = str(job.get("why") or "")
            if why and why != told and not quiet:
                note(f"{job['status'].lower()}: {why}")
                told = why
            time.sleep(PAUSE_S)


def between_attempts(job: Json, attempt: int | None, reason: str) -> str:
    """What ended the attempt. The reason of one that is tried again names both attempts itself."""
    if reason and job.get("retry_at"):
        return reason
    return f"attempt {attempt} ended" + (f" ({reason})" if reason else "") + ", waiting"


def events_of(client: Client, job: str, user: str | None) -> list[Json]:
    """The job's timeline, oldest first."""
    found: list[Json] = []
    after: object = None
    while len(found) < EVENTS_MAX:
        query = {"user_id": user, "page_size": 500, "after": after}
        page = client.get(path("jobs", job, "events"), query)
        found += page["events"]
        after = page.get("next_after")
        if after is None or not page["events"]:
            break
    return found


def patiently(call: Callable[[], T]) -> T:
    """Rides out short outages of the API: one word, then tries until it comes back."""
    clock = SystemClock()
    began = clock.monotonic()
    told = False
    while True:
        try:
            return call()
        except (Unreachable, Refused) as error:
            passing = isinstance(error, Unreachable) or error.status in (502, 503, 504)
            if not passing or clock.monotonic() - began > OUTAGE_MAX_S:
                raise
            if not told:
                note(f"{error}; trying again")
                told = True
            time.sleep(PAUSE_S)


def exit_code(job: Json) -> int:
    """The job's own exit code, as a shell would give it; 1 when it ended another way."""
    if job["status"] == "SUCCEEDED":
        return 0
    code = job.get("exit_code")
    if job["status"] == "FAILED" and isinstance(code, int) and code != 0:
        return 128 - code if code < 0 else min(code, 255)
    return 1


def ending(job: Json) -> str:
    """How it ended, in one line."""
    reason = f": {job['reason']}" if job.get("reason") else ""
    told = f"exit code {job['exit_code']}" in reason
    code = job.get("exit_code") if not told else None
    code = f" (exit code {code})" if code not in (None, 0) else ""
    return f"job {job['job_id']} {job['status'].lower()}{code}{reason}"
