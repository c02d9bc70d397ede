"""A real server on a socket holds its clients to the bounds of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from config.settings import ApiSettings
from scheduler.api.http.app import create_app
from scheduler.api.http.connections import ConnectionLimits
from scheduler.api.http.server import bind, web_server
from tests.access import OWNER
from tests.scheduler.api.fakes import House

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
KEY = f"Authorization: Bearer {OWNER}\r\n".encode()
POST = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + KEY
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
PATIENT = ConnectionLimits()
HASTY = ConnectionLimits(head_s=0.2, body_s=0.2, stall_s=0.2)

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Line]]


@asynccontextmanager
async def serving(limits: ConnectionLimits) -> AsyncIterator[Connect]:
    listening = bind("127.0.0.1", 0)
    server = web_server(create_app(House().services()), ApiSettings(), limits)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    made: list[asyncio.StreamWriter] = []

    async def connect() -> Line:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        made.append(writer)
        return reader, writer

    try:
        yield connect
    finally:
        for writer in made:
            writer.transport.abort()
        server.should_exit = True
        await running


async def answer_to(connect: Connect, *parts: bytes) -> bytes:
    """Everything that comes until the server closes."""
    reader, writer = await connect()
    for part in parts:
        writer.write(part)
        try:
            await writer.drain()
        except ConnectionError:
            break
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def asked(line: Line, request: bytes) -> bytes:
    """The head of the answer on a connection that stays."""
    line[1].write(request)
    return await line[0].readuntil(b"\r\n\r\n")


@pytest.mark.parametrize(
    "parts",
    [
        [HEALTH, b"X-Long: " + b"a" * 60_000_000],
        [HEALTH, b"".join(b"X-%d: 1\r\n" % n for n in range(300_000)), b"\r\n"],
        [HEALTH + b"X: 1\r\n" * 101 + b"\r\n"],
        [b"GET /" + b"a" * 33_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"],
        [CHUNKED, b"0\r\n", b"X-Long: " + b"a" * 60_000_000],
    ],
    ids=["long header", "many headers", "101 headers", "long path", "long trailer"],
)
async def test_large_heads_are_refused(parts: list[bytes]) -> None:
    """431, or a closed door while the client still sends; the rest is not read."""
    async with serving(PATIENT) as connect:
        told = await answer_to(connect, *parts)
        assert told == b"" or told.startswith(b"HTTP/1.1 431 ")
        assert b"200 OK" in await asked(await connect(), HEALTH + b"\r\n")


async def test_refusal_is_json() -> None:
    """What no route sees has the shape of all errors, and ends the connection."""
    async with serving(PATIENT) as connect:
        told = await answer_to(connect, HEALTH + b"X: 1\r\n" * 101 + b"\r\n")
        nonsense = await answer_to(connect, b"nonsense\r\n\r\n")
    assert b"connection: close" in told
    assert b"x-content-type-options: nosniff" in told
    assert b'"code":"headers_too_large"' in told
    assert nonsense.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in nonsense


async def test_heads_up_to_the_bound_are_read() -> None:
    """Also with a body in the same packet, and one after the other on one connection."""
    body = b'{"command": ["true"], "name": "' + b"n" * 20 + b'"}'
    long = b"X-Long: " + b"a" * 32_000 + b"\r\n"
    async with serving(PATIENT) as connect:
        line = await connect()
        for _ in range(3):
            length = b"Content-Length: %d\r\n\r\n" % len(body)
            assert b" 201 " in await asked(line, POST + long + length + body)
            await line[0].readuntil(b"}")
        pipelined = await answer_to(
            connect, (HEALTH + b"\r\n") * 2_000 + HEALTH + b"Connection: close\r\n\r\n"
        )
        assert pipelined.count(b"HTTP/1.1 200 ") == 2_001


async def test_trailers_are_no_headers() -> None:
    """A chunked body may end with more headers: routes never see them."""
    body = b'{"command": ["true"]}'
    trailer = b"0\r\nIdempotency-Key: a\r\n\r\n"
    async with serving(PATIENT) as connect:
        line = await connect()
        told = []
        for _ in range(2):
            request = CHUNKED + b"%x\r\n%s\r\n" % (len(body), body) + trailer
            assert b" 201 " in await asked(line, request)
            told.append(await line[0].readuntil(b"}"))
    assert told[0] != told[1]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", b""),
        (b"\r\n\r\n", b"HTTP/1.1 408 "),
        (b"GET /hea", b"HTTP/1.1 408 "),
        (HEALTH, b"HTTP/1.1 408 "),
        (POST + b"Content-Length: 9\r\n\r\n{", b"HTTP/1.1 408 "),
        (CHUNKED + b"9\r\n{", b"HTTP/1.1 408 "),
    ],
)
async def test_slow_requests_end(sent: bytes, told: bytes) -> None:
    """A request that does not end in time is told so and its connection is closed."""
    async with serving(HASTY) as connect:
        assert (await answer_to(connect, sent)).startswith(told)


async def test_second_request_must_end_as_well() -> None:
    """A served request buys no time for the next one."""
    async with serving(HASTY) as connect:
        line = await connect()
        assert b"200 OK" in await asked(line, HEALTH + b"\r\n")
        line[1].write(HEALTH)
        assert b"HTTP/1.1 408 " in await line[0].read()


async def test_drip_is_no_progress() -> None:
    """A byte now and then does not extend the time for the head."""
    async with serving(HASTY) as connect:
        reader, writer = await connect()
        told = asyncio.create_task(reader.read())
        while not told.done():
            writer.write(b"G" if writer.transport.get_write_buffer_size() == 0 else b"")
            await asyncio.wait({told}, timeout=0.02)
        assert (await told).startswith(b"HTTP/1.1 4")


async def test_newcomer_displaces_the_longest_idle() -> None:
    """Half-open connections cannot keep others out; requests in progress stay."""
    async with serving(ConnectionLimits(connections=3)) as connect:
        busy = await connect()
        busy[1].write(POST + b"Content-Length: 21\r\n\r\n{")
        idle = [await connect() for _ in range(20)]
        assert b"200 OK" in await asked(await connect(), HEALTH + b"\r\n")
        assert await idle[0][0].read() == b""
        busy[1].write(b'"command": ["true"]}')
        assert b" 201 " in await busy[0].readuntil(b"\r\n\r\n")


async def test_full_of_requests() -> None:
    """Without an idle connection the newcomer is told to come again."""
    async with serving(ConnectionLimits(connections=2)) as connect:
        for _ in range(2):
            line = await connect()
            line[1].write(POST + b"Content-Length: 21\r\nExpect: 100-continue\r\n\r\n")
            assert b"100 Continue" in await line[0].readuntil(b"\r\n\r\n")
        told = await answer_to(connect)
    assert told.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in told.lower()
