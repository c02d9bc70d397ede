"""Dead letters: list, show, send again."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from core.errors import BadInput, Fault
from core.names import Names
from core.reads import DeadLetterRow
from core.submission import shown
from scheduler.api import examples
from scheduler.api.http.endpoint import PREFIX, Endpoint, ResponseDoc, reply
from scheduler.api.http.params import Param, Query
from scheduler.api.routes.jobs import PAGE_SIZE, PAGE_TOKEN
from scheduler.api.services import Services
from scheduler.api.shapes import Time, iso, iso_or_none
from scheduler.operations.dead_letters import Replayed, known_sources, replay_dead_letter, topic_of

TAG = "service"
PREVIEW_CHARS = 200
ID_CHARS_MAX = 256


class DeadLetterOut(Struct, frozen=True):
    """A message that we could not use."""

    id: str
    source: str
    topic: str
    at: Time
    reason: str
    size: int
    preview: str
    replayed_at: Time | None


class WholeDeadLetterOut(Struct, frozen=True):
    """A message that we could not use, with all that came."""

    id: str
    source: str
    topic: str
    at: Time
    reason: str
    size: int
    encoding: str
    body: str
    attributes: Mapping[str, str]
    replayed_at: Time | None


class DeadLettersOut(Struct, frozen=True):
    """A page of dead letters, newest first."""

    dead_letters: tuple[DeadLetterOut, ...]
    total: int
    next_page_token: str | None


class ReplayedOut(Struct, frozen=True):
    """What became of the request to send it again."""

    id: str
    topic: str
    status: str
    replayed_at: Time | None
    message: str


class DeadLetterRoutes:
    """The handlers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list(self, _: Request, query: Query) -> Response:
        source, known = query.text("source"), known_sources(self._services.names)
        page = await self._services.reads.dead_letters(
            source, query.whole("page_size"), query.text("page_token")
        )
        # Dead letters of a former prefix may still be there: only a source without any is a
        # mistake.
        if source is not None and not page.total and source not in known:
            raise BadInput([Fault("source", shown(source), f"one of: {', '.join(known)}")])
        rows = tuple(dead_letter_out(row, self._services.names) for row in page.rows)
        return reply(DeadLettersOut(rows, page.total, page.next_token))

    async def get(self, request: Request, _: Query) -> Response:
        row = await self._services.reads.dead_letter(_dead_letter_id(request))
        return reply(whole_dead_letter_out(row, self._services.names))

    async def replay(self, request: Request, _: Query) -> Response:
        on = self._services
        done = await replay_dead_letter(
            on.reads, on.store, _dead_letter_id(request), on.names, on.clock.now()
        )
        return reply(replayed_out(done, on.names), 202 if done.sent else 200)


def dead_letter_out(row: DeadLetterRow, names: Names) -> DeadLetterOut:
    dead_letter = row.dead_letter
    return DeadLetterOut(
        id=dead_letter.message_id,
        source=dead_letter.source,
        topic=topic_of(dead_letter.source, names),
        at=iso(dead_letter.at),
        reason=dead_letter.reason,
        size=len(dead_letter.body),
        # Cut in bytes first: a megabyte need not be read for two hundred characters.
        preview=dead_letter.body[: 4 * PREVIEW_CHARS].decode(errors="replace")[:PREVIEW_CHARS],
        replayed_at=iso_or_none(row.replayed_at),
    )


def whole_dead_letter_out(row: DeadLetterRow, names: Names) -> WholeDeadLetterOut:
    dead_letter = row.dead_letter
    encoding, body = _readable(dead_letter.body)
    return WholeDeadLetterOut(
        id=dead_letter.message_id,
        source=dead_letter.source,
        topic=topic_of(dead_letter.source, names),
        at=iso(dead_letter.at),
        reason=dead_letter.reason,
        size=len(dead_letter.body),
        encoding=encoding,
        body=body,
        attributes=dead_letter.attributes,
        replayed_at=iso_or_none(row.replayed_at),
    )


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


def endpoints(services: Services) -> list[Endpoint]:
    """What this file serves."""
    on = DeadLetterRoutes(services)
    dead_letters, dead_letter = f"{PREFIX}/dead-letters", f"{PREFIX}/dead-letters/{{letter_id}}"
    return [
        Endpoint(
            method="GET",
            path=dead_letters,
            summary="Messages that could not be used, newest first",
            tag=TAG,
            handle=on.list,
            answers={200: ResponseDoc("A page of them.", DeadLettersOut, examples.DEAD_LETTERS)},
            params=(
                Param("source", "text", "Only of this source: submit, heartbeats, or a topic."),
                PAGE_SIZE,
                PAGE_TOKEN,
            ),
            errors=(422, 503),
        ),
        Endpoint(
            method="GET",
            path=dead_letter,
            summary="One dead letter, whole",
            tag=TAG,
            handle=on.get,
            answers={200: ResponseDoc("The letter.", WholeDeadLetterOut, examples.DEAD_LETTER)},
            errors=(404, 422, 503),
        ),
        Endpoint(
            method="POST",
            path=f"{dead_letter}/replay",
            summary="Send a dead letter again, once",
            tag=TAG,
            handle=on.replay,
            answers={
                202: ResponseDoc("It is on its way.", ReplayedOut, examples.REPLAYED),
                200: ResponseDoc(
                    "It was sent again before.", ReplayedOut, examples.REPLAYED_BEFORE
                ),
            },
            errors=(404, 422, 503),
        ),
    ]
