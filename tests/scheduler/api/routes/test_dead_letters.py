"""Dead letters over REST: whole, in pages, sent again once."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest

from core.changes import DeadLetter
from core.messages import OutMessage
from core.names import Names
from scheduler.operations.dead_letters import topic_of
from tests.scheduler.api.fakes import NOW, House, assert_error

DEAD_LETTERS = "/api/v1/dead-letters"


def house(**dead_letter_rows: DeadLetter) -> House:
    made = House()
    made.write(*dead_letter_rows.values())
    return made


BAD_JOB = DeadLetter("7", "submit", b'{"gpu_count": 0}', {"k": "v"}, "gpu_count: got 0", NOW)
BAD_HEARTBEAT = DeadLetter(
    "8", "heartbeats", b"\xff\x00", {}, "not JSON", NOW - timedelta(seconds=1)
)


async def test_letters_are_listed_and_filtered() -> None:
    """The reason and the head of the body are in the list; a body that is no text is harmless."""
    async with house(a=BAD_JOB, b=BAD_HEARTBEAT).client() as client:
        every = (await client.get(DEAD_LETTERS)).json()
        some = (await client.get(DEAD_LETTERS, params={"source": "heartbeats"})).json()
    assert [dead_letter["id"] for dead_letter in every["dead_letters"]] == ["7", "8"]
    assert every["dead_letters"][0]["preview"] == '{"gpu_count": 0}'
    assert [dead_letter["id"] for dead_letter in some["dead_letters"]] == ["8"]
    assert some["dead_letters"][0]["size"] == 2


async def test_letter_is_shown_whole() -> None:
    """Text as text, bytes as base64, attributes and topic beside it."""
    async with house(a=BAD_JOB, b=BAD_HEARTBEAT).client() as client:
        text = (await client.get(f"{DEAD_LETTERS}/7")).json()
        raw = (await client.get(f"{DEAD_LETTERS}/8")).json()
        unknown = await client.get(f"{DEAD_LETTERS}/9")
    assert (text["encoding"], text["body"], text["attributes"]) == (
        *("utf-8", '{"gpu_count": 0}'),
        {"k": "v"},
    )
    assert (raw["encoding"], base64.b64decode(raw["body"])) == ("base64", b"\xff\x00")
    assert raw["topic"] == Names().heartbeat_topic
    assert_error(unknown, 404, "not_found")


async def test_replay_sends_once_however_often_it_is_asked_for() -> None:
    """The same body and attributes to the topic it came from; the second request sends nothing."""
    made = house(a=BAD_JOB)
    async with made.client() as client:
        first = await client.post(f"{DEAD_LETTERS}/7/replay")
        second = await client.post(f"{DEAD_LETTERS}/7/replay")
        shown = (await client.get(f"{DEAD_LETTERS}/7")).json()
        unknown = await client.post(f"{DEAD_LETTERS}/9/replay")
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["replayed_at"] == second.json()["replayed_at"] == shown["replayed_at"]
    assert made.sent == [OutMessage(Names().submit_topic, BAD_JOB.body, BAD_JOB.attributes)]
    assert_error(unknown, 404, "not_found")


@pytest.mark.parametrize(
    ("source", "topic"),
    [
        ("submit", "pipeline-zen-jobs-submit"),
        ("heartbeats", "pipeline-zen-jobs-heartbeats"),
        ("pipeline-zen-jobs-control", "pipeline-zen-jobs-control"),
    ],
)
def test_letters_go_back_to_where_they_belong(source: str, topic: str) -> None:
    """What we could not read to its subscription's topic, what we could not send to its own."""
    assert topic_of(source, Names()) == topic


async def test_strange_ids_are_refused() -> None:
    """An id that no dead letter can have is a fault of the request, not of ours."""
    async with house().client() as client:
        assert_error(await client.get(f"{DEAD_LETTERS}/{'x' * 300}"), 422, "bad_input")
        assert_error(await client.get(f"{DEAD_LETTERS}/a%00b"), 422, "bad_input")


async def test_an_unknown_source_is_refused_with_those_there_are() -> None:
    """A typing error would look as if every message could be used. A source of ours without
    dead letters is an empty list, and so is one that has dead letters, whatever it is called."""
    old = DeadLetter("9", "old-prefix-start", b"x", {}, "refused", NOW)
    async with house(a=BAD_JOB, c=old).client() as client:
        wrong = await client.get(DEAD_LETTERS, params={"source": "heartbeat"})
        none = await client.get(DEAD_LETTERS, params={"source": "heartbeats"})
        former = await client.get(DEAD_LETTERS, params={"source": "old-prefix-start"})
    body = assert_error(wrong, 422, "bad_input")
    for name in ("submit", "heartbeats", Names().start_topic, Names().control_topic):
        assert name in str(body["message"])
    assert none.json()["total"] == 0
    assert former.json()["total"] == 1
