"""The gate before every endpoint that is not public: who calls, and may they?"""

from __future__ import annotations

from starlette.requests import Request

from config.settings import ApiSettings
from core.access import TENANT_HEADER, Right
from core.ports import Clock
from scheduler.access.authenticator import Authenticator, NotAllowed
from scheduler.api.caller import ApiCaller
from scheduler.api.http.rate_limit import RateLimit, client_address
from scheduler.api.http.session_cookie import Cookies, refuse_forged


class Gate:
    """One for all routes."""

    def __init__(self, authenticator: Authenticator, api: ApiSettings, clock: Clock) -> None:
        self._authenticator = authenticator
        self._hops = api.forwarded_hops
        self._cookies = Cookies(api)
        self._rate = RateLimit(api, clock)

    def count_public(self, request: Request) -> None:
        """TooManyRequests of an address at a public endpoint: with a header for credentials, which
        nobody looks at there, the request was not counted before."""
        if "authorization" in request.headers:
            self._rate.check(client_address(request.scope, self._hops))

    async def admit(self, request: Request, right: Right) -> ApiCaller:
        """Unauthenticated, NotAllowed, TooManyRequests, or who calls."""
        address = client_address(request.scope, self._hops)
        given = self._cookies.credentials(request)
        refuse_forged(request, given)
        principal = await self._authenticator.principal(given, address)
        self._rate.check(principal.name)
        if (tenant_id := request.headers.get(TENANT_HEADER)) is not None:
            principal = principal.within(tenant_id)
        if not principal.may(right):
            raise NotAllowed(
                f"{principal.name} may not {right.meaning} ({right}): ask an admin for a role "
                "that has this right"
            )
        return ApiCaller(principal, right, address, str(request.state.request_id))
