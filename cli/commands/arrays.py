"""An array, or a named group, where a command takes a job: shown, read and stopped as a whole."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass, field

import typer

from cli.client import Client, Json, Refused, path
from cli.commands.jobs import jobs_table
from cli.output.follow import FINAL_WAIT_S, Follower, patiently
from cli.output.printing import Answer, emit, note
from cli.output.terminal import without_orders
from cli.paths import PROGRAM
from core.clock import SystemClock
from core.errors import NotFound
from core.job_status import FINAL

PAGE = 500
JOBS_MAX = 100_000
PAUSE_S = 1.0
LINE_MAX = 64 * 1024
"""A line that is longer is printed in pieces."""
NOT_FOUND = 404


def group_of(client: Client, name: str, user: str | None, refused: Refused) -> Json:
    """The array or group of that name, for a command that found no job; NotFound if there is none
    either. Any other refusal is raised again."""
    if refused.status != NOT_FOUND:
        raise refused
    try:
        return client.get(path("groups", name), {"user_id": user})
    except Refused as other:
        if other.status != NOT_FOUND:
            raise
        raise NotFound(f"there is no job, array or group {name}") from other


def show_array(client: Client, group: Json, limit: int, offset: int) -> Answer:
    """Its counts, and its jobs page by page."""
    name, user = group["group"], group["user_id"]
    query = {"group": name, "user_id": user, "limit": limit, "offset": offset}
    page = client.get("/jobs", query)
    lines = [
        f"array:       {name}",
        f"owner:       user {user}",
        f"jobs:        {group['message']}",
    ]
    table = jobs_table({"jobs": sorted(page["jobs"], key=_order)}, SystemClock().now())
    end = offset + len(page["jobs"])
    further = f"the next: {PROGRAM} show {name} --offset {end}"
    notes = [f"{offset + 1} to {end} of {page['total']} shown; {further}"]
    whole = {**group, "jobs": page["jobs"], "offset": offset}
    return Answer(whole, [*lines, "", table], notes if page["total"] > end else ())


def print_logs(
    client: Client, group: Json, attempt: int | None, tail: int | None, as_json: bool, raw: bool
) -> None:
    """What there is now, each line behind the id of its job."""
    from cli.output.logs import collected

    found = []
    for job in all_jobs(client, group):
        if not job["attempt"]:
            continue
        data, last = collected(Follower(client, job["job_id"], job["user_id"]), attempt, tail)
        text = data.decode(errors="replace")
        if as_json:
            found.append({"job_id": job["job_id"], "attempt": last.attempt, "text": text})
            continue
        for line in text.splitlines():
            _write(job["job_id"], line, raw)
    if as_json:
        emit({"group": group["group"], "logs": found})


def follow_logs(client: Client, group: Json, as_json: bool, raw: bool) -> None:
    """The logs of all jobs as they grow, until the last one has ended."""
    readers: dict[str, _Reader] = {}
    name = group["group"]
    try:
        while True:
            jobs: list[Json] = patiently(lambda: all_jobs(client, group))
            for job in jobs:
                reader = readers.setdefault(job["job_id"], _Reader(client, job, raw))
                reader.read(job, as_json)
            if all(readers[job["job_id"]].done for job in jobs):
                break
            time.sleep(PAUSE_S)
    except KeyboardInterrupt:
        note(f"{name} goes on; stop it with: {PROGRAM} stop {name}")
        raise typer.Exit(130) from None
    ended = client.get(path("groups", name), {"user_id": group["user_id"]})
    if as_json:
        emit(ended, line=True)
    else:
        note(f"{name}: {ended['message']}")


@dataclass(slots=True)
class _Reader:
    """How far the logs of one job have been printed."""

    client: Client
    job: Json
    raw: bool
    attempt: int = 0
    offset: int = 0
    rest: str = ""
    """A line that has no end yet."""
    ended_at: float | None = None
    done: bool = False
    clock: SystemClock = field(default_factory=SystemClock)

    def read(self, job: Json, as_json: bool) -> None:
        """What is new, over all attempts up to the newest."""
        if self.done:
            return
        newest = int(job["attempt"] or 0)
        complete = newest == 0
        while newest and not complete:
            self.attempt = self.attempt or 1
            complete = self._drain(as_json)
            if self.attempt >= newest:
                break
            # A newer attempt has begun: what this one left is all there is of it.
            self._flush(as_json)
            self.attempt, self.offset, complete = self.attempt + 1, 0, False
        if job["status"] not in FINAL:
            return
        now = self.clock.monotonic()
        self.ended_at = now if self.ended_at is None else self.ended_at
        if complete or now - self.ended_at > FINAL_WAIT_S:
            self._flush(as_json)
            self.done = True

    def _drain(self, as_json: bool) -> bool:
        """Whether the attempt's log is complete."""
        follower = Follower(self.client, self.job["job_id"], self.job["user_id"])
        while True:
            chunk = follower.read(self.attempt, self.offset, 0)
            self.offset = chunk.next_offset
            self.rest += chunk.data.decode(errors="replace")
            *lines, self.rest = self.rest.split("\n")
            for line in lines:
                self._tell(line, as_json)
            if len(self.rest) > LINE_MAX:
                self._flush(as_json)
            if chunk.done or not chunk.data:
                return chunk.done

    def _flush(self, as_json: bool) -> None:
        if self.rest:
            self._tell(self.rest, as_json)
            self.rest = ""

    def _tell(self, line: str, as_json: bool) -> None:
        job_id = self.job["job_id"]
        if as_json:
            emit({"job_id": job_id, "attempt": self.attempt, "text": line}, line=True)
        else:
            _write(job_id, line, self.raw)


def all_jobs(client: Client, group: Json) -> list[Json]:
    """The jobs of a group, in the order of their indexes."""
    query: Json = {"group": group["group"], "user_id": group["user_id"], "page_size": PAGE}
    page = client.get("/jobs", query)
    client.read_on(page, "/jobs", query, "jobs", JOBS_MAX)
    return sorted(page["jobs"], key=_order)


def _order(job: Json) -> tuple[str, int, str]:
    """sweep-2 before sweep-10."""
    name = str(job["job_id"])
    index = re.search(r"-(\d+)\Z", name)
    return (name[: index.start()] if index else name, int(index[1]) if index else -1, name)


def _write(job_id: str, line: str, raw: bool) -> None:
    shown = line if raw else without_orders(line)
    sys.stdout.write(f"{job_id} | {shown.rstrip(chr(13))}\n")
    sys.stdout.flush()
