"""No web page has business with a local bus or a pretend cloud: what a browser sends is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from core.browser_checks import may_be_a_browser

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def refuse_browsers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """403 for a page of any site, and for a public name that was rebound to this address."""
    heads = request.headers
    if may_be_a_browser(heads.get("Host", ""), heads.get("Origin"), heads.get("Sec-Fetch-Site")):
        raise web.HTTPForbidden(reason="web pages are not served")
    return await handler(request)
