"""Dead letters: list, show, send again."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from core.access import Right
from core.audit_log import AuditAction
from core.errors import BadInput, Fault
from core.names import Names
from core.reads import DeadLetterRow
from core.submission import shown
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import ResponseDoc, Routes, reply, route
from scheduler.api.http.params import Param, Query
from scheduler.api.routes.jobs import PAGE_SIZE, PAGE_TOKEN
from scheduler.api.shapes import Time, iso_or_none, shaped
from scheduler.operations.dead_letters import Replayed, known_sources, replay_dead_letter, topic_of

PREVIEW_CHARS = 200
ID_CHARS_MAX = 256


class _DeadLetterHead(Struct, frozen=True):
    id: str
    source: str
    topic: str
    at: Time
    reason: str
    size: int


class DeadLetterOut(_DeadLetterHead, frozen=True):
    """A message that we could not use."""

    preview: str
    replayed_at: Time | None


class WholeDeadLetterOut(_DeadLetterHead, frozen=True):
    """A message that we could not use, with all that came."""

    encoding: str
    body: str
    attributes: Mapping[str, str]
    replayed_at: Time | None


_Letter = TypeVar("_Letter", DeadLetterOut, WholeDeadLetterOut)


class DeadLettersOut(Struct, frozen=True):
    """A page of dead letters, newest first."""

    dead_letters: tuple[DeadLetterOut, ...]
    total: int
    next_page_token: str | None
    total_exact: bool = True
    """False: there are more than `total`; no more are counted."""


class ReplayedOut(Struct, frozen=True):
    """What became of the request to send it again."""

    id: str
    topic: str
    status: str
    replayed_at: Time | None
    message: str


class DeadLetterRoutes(Routes):
    """Messages that could not be used."""

    tag = "service"

    @route(
        "GET /api/v1/dead-letters",
        Right.DEAD_LETTERS,
        "A page of them.",
        params=(
            Param("source", "text", "Only of this source: submit, heartbeats, or a topic."),
            PAGE_SIZE,
            PAGE_TOKEN,
        ),
    )
    async def list(self, query: Query) -> DeadLettersOut:
        """Messages that could not be used, newest first."""
        source, known = query.text("source"), known_sources(self._services.names)
        page = await self._services.reads.dead_letters(
            source, query.whole("page_size"), query.text("page_token")
        )
        # Dead letters of a former prefix may still be there: only a source without any is a
        # mistake.
        if source is not None and not page.total and source not in known:
            raise BadInput([Fault("source", shown(source), f"one of: {', '.join(known)}")])
        rows = tuple(self._shaped(DeadLetterOut, row) for row in page.rows)
        return DeadLettersOut(rows, page.total, page.next_token, page.total_exact)

    @route("GET /api/v1/dead-letters/{letter_id}", Right.DEAD_LETTERS, "The letter.", errors=(404,))
    async def get(self, request: Request) -> WholeDeadLetterOut:
        """One dead letter, whole."""
        row = await self._services.reads.dead_letter(_dead_letter_id(request))
        return self._shaped(WholeDeadLetterOut, row)

    @route(
        "POST /api/v1/dead-letters/{letter_id}/replay",
        Right.DEAD_LETTERS,
        {
            202: ResponseDoc("It is on its way.", ReplayedOut),
            200: ResponseDoc(
                "It was sent again before.",
                ReplayedOut,
                {
                    "message": "was sent to pipeline-zen-jobs-submit again at "
                    "2026-01-31T12:05:00.000Z; nothing was sent now"
                },
            ),
        },
        errors=(404,),
    )
    async def replay(self, request: Request, caller: ApiCaller) -> Response:
        """Send a dead letter again, once."""
        on, letter_id = self._services, _dead_letter_id(request)
        replay, now = AuditAction.DEAD_LETTER_REPLAY, on.clock.now()
        audited = caller.did(replay, f"dead_letter/{letter_id}", now)
        done = await replay_dead_letter(on.reads, on.store, letter_id, on.names, audited)
        return reply(replayed_out(done, on.names), 202 if done.sent else 200)

    def _shaped(self, kind: type[_Letter], row: DeadLetterRow) -> _Letter:
        """A dead letter with as much of it as `kind` shows."""
        found = row.dead_letter
        body = found.body
        own: dict[str, object] = {
            "id": found.message_id,
            "topic": topic_of(found.source, self._services.names),
            "size": len(body),
            "replayed_at": iso_or_none(row.replayed_at),
        }
        if kind is DeadLetterOut:
            # Cut in bytes first: a megabyte need not be read for two hundred characters.
            own["preview"] = body[: 4 * PREVIEW_CHARS].decode(errors="replace")[:PREVIEW_CHARS]
        else:
            own["encoding"], own["body"] = _readable(body)
        return shaped(kind, found, **own)


def replayed_out(done: Replayed, names: Names) -> ReplayedOut:
    dead_letter, at = done.row.dead_letter, iso_or_none(done.row.replayed_at)
    topic = topic_of(dead_letter.source, names)
    words = (
        f"goes to {topic} again; if it fails again, it becomes a new dead letter"
        if done.sent
        else f"was sent to {topic} again at {at}; nothing was sent now"
    )
    return ReplayedOut(dead_letter.message_id, topic, "replayed", at, words)


def _readable(body: bytes) -> tuple[str, str]:
    try:
        return "utf-8", body.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(body).decode()


def _dead_letter_id(request: Request) -> str:
    dead_letter_id = str(request.path_params["letter_id"])
    if len(dead_letter_id) > ID_CHARS_MAX or not dead_letter_id.isprintable():
        expected = f"the id of a dead letter: at most {ID_CHARS_MAX} printable characters"
        raise BadInput([Fault("letter_id", shown(dead_letter_id), expected)])
    return dead_letter_id
