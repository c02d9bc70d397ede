"""The FastAPI app: routes, errors in one shape, documentation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from core.access import Right
from core.errors import ZenError
from scheduler.access.authenticator import Unauthenticated
from scheduler.api.compat.customer import CustomerRoutes
from scheduler.api.compat.definition import DefinitionRoutes
from scheduler.api.compat.status import CustomerStatusRoutes
from scheduler.api.http.browser_checks import Front
from scheduler.api.http.direct_routes import DirectRoutes, OnError
from scheduler.api.http.docs_page import render as render_page
from scheduler.api.http.endpoint import Endpoint, direct_paths, reply, routes
from scheduler.api.http.gate import Gate
from scheduler.api.http.layered_app import LayeredApp
from scheduler.api.http.middleware import Edge
from scheduler.api.http.openapi import document
from scheduler.api.http.problems import CODES, REQUEST_ID, Problem, internal, problem_of, render
from scheduler.api.http.security_headers import PAGE_POLICY
from scheduler.api.http.sign_in_page import SIGN_IN_POLICY, signed_out_page
from scheduler.api.http.way_back import asked_for, wants_page
from scheduler.api.routes.access import AccessRoutes
from scheduler.api.routes.artifacts import ArtifactRoutes
from scheduler.api.routes.batches import BatchRoutes
from scheduler.api.routes.capacity import CapacityRoutes
from scheduler.api.routes.code import CodeRoutes
from scheduler.api.routes.config import ConfigRoutes
from scheduler.api.routes.cost import CostRoutes
from scheduler.api.routes.dead_letters import DeadLetterRoutes
from scheduler.api.routes.grants import GrantRoutes
from scheduler.api.routes.groups import GroupRoutes
from scheduler.api.routes.jobs import REPEAT, JobRoutes
from scheduler.api.routes.logs import LogRoutes
from scheduler.api.routes.secrets import SecretRoutes
from scheduler.api.routes.service import ServiceRoutes
from scheduler.api.routes.sessions import SessionRoutes
from scheduler.api.routes.sign_in import SignInRoutes
from scheduler.api.routes.supply import SupplyRoutes
from scheduler.api.routes.tenants import TenantRoutes
from scheduler.api.services import Services

_log = structlog.get_logger(__name__)
NATIVE = (
    *(JobRoutes, GroupRoutes, LogRoutes, ArtifactRoutes, CapacityRoutes, SupplyRoutes, CostRoutes),
    *(TenantRoutes, ServiceRoutes, ConfigRoutes, DeadLetterRoutes, AccessRoutes, GrantRoutes),
    *(SecretRoutes, SessionRoutes, SignInRoutes, BatchRoutes, CodeRoutes),
)
_PAGE_HEADERS = {"Content-Security-Policy": PAGE_POLICY}
# No Basic: the browser's own dialogue would cover the page.
_SIGN_IN_HEADERS = {
    "Content-Security-Policy": SIGN_IN_POLICY,
    "WWW-Authenticate": 'Bearer realm="zen"',
}
SIGN_IN_FIRST = "sign in to see this page"
COMPATIBLE = (CustomerRoutes, CustomerStatusRoutes, DefinitionRoutes)
"""Routes of other systems, for clients that were written for them."""


def create_app(services: Services) -> FastAPI:
    """The whole API. Routes are plain Starlette ones: FastAPI's own would put pydantic and
    dependency solving between a submission and the database."""
    table = endpoints(services)
    # Slashes are not redirected: a POST that is answered 307 loses its body in many clients.
    # FastAPI's own pages load their scripts from elsewhere: blank on a laptop without network.
    app = LayeredApp(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    gate = Gate(services.access.authenticator, services.api, services.clock)
    served = routes(table, gate)
    app.router.routes[:0] = served
    app.openapi = _cached(table, services.version)  # type: ignore[method-assign]
    app.router.routes += _documentation(app, gate)
    app.add_exception_handler(ZenError, _on_zen_error)
    on_error: dict[type[Exception], OnError] = {
        Unauthenticated: partial(_on_nobody, services),
        HTTPException: _on_http_error,
    }
    for kind, tell in on_error.items():
        app.add_exception_handler(kind, tell)
    app.put_around(partial(DirectRoutes, paths=direct_paths(served), on_error=on_error))
    app.put_around(partial(Edge, ids=services.ids, api=services.api, clock=services.clock))
    if services.api.cors_origins:
        cors = partial(
            CORSMiddleware,
            allow_origins=services.api.cors_origins,
            allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
            allow_headers=("Content-Type", "Authorization", "Idempotency-Key", REQUEST_ID),
            expose_headers=(REQUEST_ID, REPEAT),
        )
        app.put_around(cors)
    app.put_around(partial(Front, ids=services.ids, api=services.api))
    return app


def create_metrics_app(services: Services) -> Starlette:
    """`/metrics` alone, for a port of its own."""
    table = [row for row in ServiceRoutes(services).endpoints() if row.path == "/metrics"]
    handlers = {ZenError: _on_zen_error, HTTPException: _on_http_error}
    gate = Gate(services.access.authenticator, services.api, services.clock)
    app = Starlette(routes=routes(table, gate), exception_handlers=handlers)
    app.add_middleware(Edge, ids=services.ids, api=services.api, clock=services.clock)
    app.add_middleware(Front, ids=services.ids, api=services.api)
    return app


def endpoints(services: Services) -> list[Endpoint]:
    """Everything served, in the order of the documentation."""
    return [row for subject in (*NATIVE, *COMPATIBLE) for row in subject(services).endpoints()]


def _documentation(app: FastAPI, gate: Gate) -> list[BaseRoute]:
    """What the service says of itself, to callers alone."""

    async def page(request: Request) -> Response:
        await gate.admit(request, Right.FLEET_READ)
        return HTMLResponse(render_page(app.openapi()), headers=_PAGE_HEADERS)

    async def openapi(request: Request) -> Response:
        await gate.admit(request, Right.FLEET_READ)
        return reply(app.openapi())

    return [Route("/docs", page), Route("/openapi.json", openapi)]


def _cached(table: list[Endpoint], version: str) -> Callable[[], dict[str, Any]]:
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(document(table, version))
        return made

    return openapi


def _request_id(request: Request) -> str:
    return str(request.state.request_id)


async def _on_zen_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ZenError), error
    request_id = _request_id(request)
    problem = problem_of(error)
    if problem is None:
        _log.error("request failed", request_id=request_id, path=request.url.path, exc_info=error)
        problem = internal(request_id)
    return render(problem, request_id)


async def _on_nobody(services: Services, request: Request, error: Exception) -> Response:
    """A browser gets the sign-in page, with a way back to what it asked for."""
    if not wants_page(request) or "authorization" in request.headers:
        return await _on_zen_error(request, error)
    issuers = services.settings.current.access.issuers.values()
    problem = str(error) if "cookie" in request.headers else SIGN_IN_FIRST
    page = signed_out_page(issuers, problem, asked_for(request))
    return HTMLResponse(page, HTTPStatus.UNAUTHORIZED, headers=_SIGN_IN_HEADERS)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), error
    status = error.status_code
    texts = {
        404: f"there is nothing at {request.url.path[:200]}; /docs lists what there is",
        405: f"{request.method} is not possible at {request.url.path[:200]}",
    }
    text = texts.get(status, error.detail)
    code = CODES.get(status, HTTPStatus(status).name.lower())
    headers = dict(error.headers or {})
    return render(Problem(status, code, text, headers=headers), _request_id(request))
