"""YAML bodies: small, off the event loop, and never costlier than their size."""

from __future__ import annotations

import asyncio
import threading

import pytest

from scheduler.api.http import yaml_bodies
from scheduler.api.http.problems import BadYaml
from scheduler.api.http.yaml_bodies import BYTES_MAX, decode_yaml
from tests.scheduler.api.fakes import House, assert_error

JOBS = "/api/v1/jobs"
AS_YAML = {"content-type": "application/yaml"}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"[" * 60_000, "nested too deeply"),
        (b"? " * 30_000, "nested too deeply"),
        (b"\n".join(b" " * n + b"a:" for n in range(340)), "nested too deeply"),
        (b"- a\n" * 16_000, "more than 5000 values at line"),
        (b"[" + b"1," * 30_000 + b"]", "more than 5000 values"),
        (b"a: &a [1]\nb: *a\n", "aliases are not read at line 2, column 4"),
        (b"a: " + b"9" * 60_000, "a value that we cannot read"),
        (b"a: 2001-99-99", "a value that we cannot read"),
        (b"a: !!int ''", "a value that we cannot read"),
        (b"a: !!bool maybe", "a value that we cannot read"),
        (b"a: !!timestamp foo", "a value that we cannot read"),
        (b"- " + b"1:" * 30_000 + b"1", "a whole number of [0-9]+ bits"),
        (b"a: !!python/object:os.system x", "could not determine a constructor"),
        (b"a: \xff", "not UTF-8"),
        (b"a: {", "at line"),
    ],
)
def test_costly_and_wrong_documents_are_refused(raw: bytes, words: str) -> None:
    """With the reason; nothing but BadYaml comes out."""
    with pytest.raises(BadYaml, match=words):
        decode_yaml(raw)


def test_values_are_plain() -> None:
    """Moments become their text, as in JSON."""
    assert decode_yaml(b"{a: [1, x], b: 2026-01-31, c: {d: ~}}") == {
        "a": [1, "x"],
        "b": "2026-01-31",
        "c": {"d": None},
    }


async def test_large_bodies_are_refused_unparsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON of that size may be read; YAML of it would take minutes."""
    monkeypatch.setattr(yaml_bodies, "decode_yaml", lambda _: pytest.fail("parsed"))
    async with House(max_body_bytes=1024 * 1024).client() as client:
        answer = await client.post(JOBS, content=b"- a\n" * 250_000, headers=AS_YAML)
    assert str(BYTES_MAX) in str(assert_error(answer, 413, "too_large")["error"])


async def test_parsed_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is being parsed the loop serves others; too many that wait are told to come
    again."""
    go, threads = threading.Event(), set()

    def parse(_: bytes) -> object:
        threads.add(threading.get_ident())
        assert go.wait(30)
        return {"command": ["true"]}

    monkeypatch.setattr(yaml_bodies, "decode_yaml", parse)
    async with House().client() as client:
        calls = [
            asyncio.create_task(client.post(JOBS, content=b"a: 1", headers=AS_YAML))
            for _ in range(40)
        ]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert_error(done.pop().result(), 503, "busy")
        assert (await client.get("/api/v1/health")).status_code == 200
        go.set()
        answers = [answer.status_code for answer in await asyncio.gather(*calls)]
    assert (answers.count(201), answers.count(503)) == (32, 8)
    assert len(threads) == 1
    assert threading.get_ident() not in threads
