"""No web page has business with a local bus or a pretend cloud, nor has another user of the
machine: what they send is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from core.browser_checks import may_be_a_browser
from localbus.peers import is_stranger

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def refuse_browsers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """403 for a page of any site, and for a public name that was rebound to this address."""
    heads = request.headers
    if may_be_a_browser(heads.get("Host", ""), heads.get("Origin"), heads.get("Sec-Fetch-Site")):
        raise web.HTTPForbidden(reason="web pages are not served")
    return await handler(request)


@web.middleware
async def refuse_strangers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """403 for another user of this machine: a job, or a neighbour."""
    if comes_from_stranger(request):
        raise web.HTTPForbidden(reason="other users of this machine are not served")
    return await handler(request)


def comes_from_stranger(request: web.Request) -> bool:
    """Whether another user than ours sends it. A connection that is gone by now is nobody's."""
    if request.transport is None:
        return True
    there, here = (request.transport.get_extra_info(name) for name in ("peername", "sockname"))
    return there is None or here is None or is_stranger(there[:2], here[:2])
