"""The ways to print a log: whole, its tail, or as it grows; raw or as JSON."""

from __future__ import annotations

import codecs
from collections import deque
from dataclasses import dataclass

import typer

from cli.client import Client
from cli.output.follow import Chunk, Follower, Sink, ending, printer
from cli.output.printing import emit, note
from cli.paths import PROGRAM

# A tail is cut from the log in memory; a longer log is read from its last part only.
TAIL_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogView:
    """What of a job's log is printed, and how."""

    job: str
    user: str | None
    attempt: int | None
    tail: int | None
    as_json: bool
    raw: bool


def print_log(client: Client, view: LogView) -> None:
    """What there is now."""
    follower = Follower(client, view.job, view.user)
    if not view.as_json and view.tail is None:
        follower.dump(view.attempt, printer(raw=view.raw))
        return
    data, last = collected(follower, view.attempt, view.tail)
    if view.as_json:
        emit({"job_id": view.job, **_as_json(last, data)})
    else:
        printer(raw=view.raw)(Chunk(last.attempt, 0, last.next_offset, last.done, last.final, data))


def follow_log(client: Client, view: LogView) -> None:
    """To the end of the job. The exit code is this command's own: the log was read."""
    job = view.job
    follower = Follower(client, job, view.user)
    sink = _json_sink(job) if view.as_json else printer(raw=view.raw)
    offset = 0
    try:
        if view.tail is not None:
            data, last = collected(follower, view.attempt, view.tail)
            if last.attempt:
                attempt_now, offset = last.attempt, last.next_offset
                sink(Chunk(attempt_now, offset - len(data), offset, last.done, last.final, data))
        ended = follower.follow(sink, attempt=view.attempt, offset=offset)
    except KeyboardInterrupt:
        note(f"job {job} goes on; stop it with: {PROGRAM} stop {job}")
        raise typer.Exit(130) from None
    if view.as_json:
        emit(ended, line=True)
    else:
        note(ending(ended))


def collected(follower: Follower, attempt: int | None, tail: int | None) -> tuple[bytes, Chunk]:
    """What there is of a log, or its last lines, and how far that goes."""
    pieces: deque[bytes] = deque()
    size = 0

    def keep(chunk: Chunk) -> None:
        nonlocal size
        pieces.append(chunk.data)
        size += len(chunk.data)
        while tail is not None and len(pieces) > 1 and size - len(pieces[0]) > TAIL_BYTES_MAX:
            size -= len(pieces.popleft())

    last = follower.dump(attempt, keep)
    data = b"".join(pieces)
    if tail is not None:
        lines = data.splitlines(keepends=True)
        data = b"".join(lines[-tail:] if tail else [])
    return data, last


def _json_sink(job: str) -> Sink:
    # A character may be cut in two between pieces; the decoder keeps its first half.
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def sink(chunk: Chunk) -> None:
        if chunk.data:
            text = decoder.decode(chunk.data, final=chunk.done)
            emit({"job_id": job, **_as_json(chunk, chunk.data), "text": text}, line=True)

    return sink


def _as_json(chunk: Chunk, data: bytes) -> dict[str, object]:
    return {
        "attempt": chunk.attempt,
        "offset": chunk.next_offset - len(data),
        "next_offset": chunk.next_offset,
        "done": chunk.done,
        "text": data.decode(errors="replace"),
    }
