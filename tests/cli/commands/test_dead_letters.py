"""zen dead-letters: what could not be used, as people and scripts see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scheduler.api.examples import example_of
from scheduler.api.routes.dead_letters import DeadLettersOut, ReplayedOut, WholeDeadLetterOut

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
DEAD_LETTER, DEAD_LETTERS = example_of(WholeDeadLetterOut), example_of(DeadLettersOut)
REPLAYED = example_of(ReplayedOut)
REPLAYED_BEFORE = {**REPLAYED, "message": "was sent to a topic again; nothing was sent now"}
LETTERS = "/api/v1/dead-letters"


def test_list_names_every_letter_with_its_reason(zen: Zen, api: Api) -> None:
    """A row each for people, the API's own page for scripts; the filter is passed on."""
    api.on("GET", LETTERS, DEAD_LETTERS)
    shown = zen("dead-letters", "list", "--source", "submit")
    assert "4711" in shown.out
    assert "gpu_count: got 0, expected a whole number from 1 to 64" in shown.out
    assert api.query() == {"source": "submit", "page_size": "50"}
    assert zen("dead-letters", "list", "--json").json == DEAD_LETTERS


def test_no_letters_is_good_news(zen: Zen, api: Api) -> None:
    """An empty list says so, and is no error."""
    api.on("GET", LETTERS, {"dead_letters": [], "total": 0, "next_page_token": None})
    ended = zen("dead-letters", "list")
    assert (ended.code, ended.out) == (0, "no dead letters: every message could be used\n")


def test_show_prints_the_body_without_letting_it_move_the_cursor(zen: Zen, api: Api) -> None:
    """What came over a wire is shown line by line, control characters taken out."""
    api.on("GET", f"{LETTERS}/4711", {**DEAD_LETTER, "body": "line one\n\x1b[2Jtwo"})
    ended = zen("dead-letters", "show", "4711")
    assert "line one\n" in ended.out
    assert "\x1b" not in ended.out
    assert "dead-letters replay 4711" in ended.out
    assert "idempotency_key=nightly-2026-01-31" in ended.out


def test_replay_tells_what_happened_to_each(zen: Zen, api: Api) -> None:
    """Sent, sent before, unknown: each has its line; an unknown one fails the command."""
    api.on("POST", f"{LETTERS}/1/replay", REPLAYED)
    api.on("POST", f"{LETTERS}/2/replay", REPLAYED_BEFORE)
    ended = zen("dead-letters", "replay", "1", "2", "3")
    assert ended.code == 1
    assert "1: goes to" in ended.out
    assert "2: was sent to" in ended.out
    assert "no such thing" in ended.err
    assert zen("dead-letters", "replay", "1", "--json").json == REPLAYED


def test_dead_letters_alone_is_the_list(zen: Zen, api: Api) -> None:
    """Without a further word the list is shown."""
    api.on("GET", "/api/v1/dead-letters", {"dead_letters": [], "total": 0})
    assert zen("dead-letters").out == "no dead letters: every message could be used\n"
