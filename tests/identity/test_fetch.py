"""What an issuer may answer, and how long it may take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from core.errors import IssuerDown
from identity import fetch
from identity.fetch import BYTES_MAX, get_json, post_form

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handle: Handle) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/", handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=500),
        web.Response(status=302, headers={"location": "http://127.0.0.1:9/"}),
        web.Response(text="<html>"),
        web.Response(text="[1, 2]"),
        web.Response(text="{"),
        web.Response(body=b"\xff\xfe"),
        web.Response(text="[" * 100_000),
        web.Response(text='{"a": "' + "x" * BYTES_MAX + '"}'),
    ],
    ids=["error", "redirect", "page", "list", "half", "bytes", "deep", "large"],
)
async def test_other_answers_are_none(answer: web.Response) -> None:
    """An error, a redirect elsewhere, a page, and more than an issuer has to say."""

    async def handle(_: web.Request) -> web.StreamResponse:
        return answer

    async with answering(handle) as url:
        with pytest.raises(IssuerDown):
            await get_json(url)


async def test_an_issuer_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep a caller waiting."""
    monkeypatch.setattr(fetch, "TOTAL_S", 0.05)

    async def handle(request: web.Request) -> web.StreamResponse:
        told = web.StreamResponse()
        await told.prepare(request)
        while True:
            await told.write(b" ")
            await asyncio.sleep(0.001)

    async with answering(handle) as url:
        with pytest.raises(IssuerDown):
            await get_json(url)


async def test_nobody_there_is_told() -> None:
    """With the address."""
    with pytest.raises(IssuerDown, match=r"127\.0\.0\.1:9"):
        await get_json("http://127.0.0.1:9/")


async def test_a_refusal_of_a_form_is_an_answer() -> None:
    """It says why (RFC 6749)."""

    async def handle(request: web.Request) -> web.StreamResponse:
        form = await request.post()
        return web.json_response({"error": form["code"]}, status=400)

    async with answering(handle) as url:
        assert await post_form(url, {"code": "invalid_grant"}) == {"error": "invalid_grant"}
