"""The REST door: the calls that `gcloud pubsub` makes, under /v1/projects/."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from google.protobuf import json_format

from localbus import protos
from localbus.browsers import refuse_browsers, refuse_strangers
from localbus.errors import BusError, InvalidArgument
from localbus.service import CALLS, AcksRefused, Call, Service

_BODY_BYTES_MAX = 20 << 20


def build_app(service: Service) -> web.Application:
    """The application with one route per call."""
    app = web.Application(
        client_max_size=_BODY_BYTES_MAX,
        middlewares=[_google_errors, refuse_browsers, refuse_strangers],
    )
    for call in CALLS:
        for path in call.paths:
            app.router.add_route(call.verb, path, _route(service, call))
    return app


def _route(service: Service, call: Call) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        message = await _read(request, call)
        _name(message, call.name_field, request)
        result = await getattr(service, call.method)(message)
        if isinstance(result, bytes):
            result = protos.PullResponse.FromString(result)
        return web.json_response(json_format.MessageToDict(result))

    return answer


async def _read(request: web.Request, call: Call) -> Any:
    """Body and query parameters as one protobuf; Google's own query options are let pass."""
    raw = await request.read()
    try:
        body = json.loads(raw) if raw else {}
        if not isinstance(body, dict):
            raise InvalidArgument(f"body: got {type(body).__name__}, expected a JSON object")
        for field in ("pageSize", "pageToken"):
            if field in request.query:
                body[field] = request.query[field]
        return json_format.ParseDict(body, call.request())
    except (ValueError, json_format.ParseError) as error:
        raise InvalidArgument(f"body: {error}, expected {call.request.DESCRIPTOR.name}") from error


def _name(message: Any, field: str, request: web.Request) -> None:
    project = f"projects/{request.match_info['project']}"
    collection = "topics" if "/topics/" in request.path else "subscriptions"
    id_ = request.match_info.get("id")
    name = project if id_ is None else f"{project}/{collection}/{id_}"
    *outer, last = field.split(".")
    for part in outer:
        message = getattr(message, part)
    setattr(message, last, name)


@web.middleware
async def _google_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except BusError as error:
        return _error(error.http, str(error), error.status, _details(error))
    except web.HTTPException as error:
        known = {
            403: "PERMISSION_DENIED",
            404: "NOT_FOUND",
            405: "UNIMPLEMENTED",
            413: "INVALID_ARGUMENT",
        }
        text = f"{request.method} {request.path}: {error.reason}"
        return _error(error.status, text, known.get(error.status, "UNKNOWN"), [])


def _details(error: BusError) -> list[dict[str, Any]]:
    if not isinstance(error, AcksRefused):
        return []
    verdict = "PERMANENT_FAILURE_INVALID_ACK_ID"
    return [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "EXACTLY_ONCE_ACKID_FAILURE",
            "domain": "pubsub.googleapis.com",
            "metadata": dict.fromkeys(error.refused, verdict),
        }
    ]


def _error(http: int, message: str, status: str, details: list[dict[str, Any]]) -> web.Response:
    error: dict[str, Any] = {"code": http, "message": message, "status": status}
    if details:
        error["details"] = details
    return web.json_response({"error": error}, status=http)
