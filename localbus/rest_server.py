"""The REST door: the calls that `gcloud pubsub` makes, under /v1/projects/."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from aiohttp import web
from google.protobuf import json_format

from localbus import protos
from localbus.errors import BusError, InvalidArgument
from localbus.service import AcksRefused, Service

_BODY_BYTES_MAX = 20 << 20
# Ids hold no slash and no colon, so `ID:verb` splits in one way.
_ID = "{id:[^/:]+}"
_PROJECT = "/v1/projects/{project}"
_TOPIC = f"{_PROJECT}/topics/{_ID}"
_SUBSCRIPTION = f"{_PROJECT}/subscriptions/{_ID}"


@dataclass(frozen=True, slots=True)
class _Call:
    """One REST call: where the resource's name goes in the request, and who answers."""

    verb: str
    path: str
    request: Any
    name_field: str
    handler: Callable[[Any], Awaitable[Any]]
    answer: Any = None


def _calls(service: Service) -> list[_Call]:
    policies = (_policy_calls(service, path) for path in (_TOPIC, _SUBSCRIPTION))
    return [*_topic_calls(service), *_subscription_calls(service), *chain.from_iterable(policies)]


def _topic_calls(s: Service) -> list[_Call]:
    p, attached = protos, protos.ListTopicSubscriptionsRequest
    return [
        _Call("GET", f"{_PROJECT}/topics", p.ListTopicsRequest, "project", s.list_topics),
        _Call("PUT", _TOPIC, p.Topic, "name", s.create_topic),
        _Call("GET", _TOPIC, p.GetTopicRequest, "topic", s.get_topic),
        _Call("PATCH", _TOPIC, p.UpdateTopicRequest, "topic.name", s.update_topic),
        _Call("DELETE", _TOPIC, p.DeleteTopicRequest, "topic", s.delete_topic),
        _Call("POST", f"{_TOPIC}:publish", p.PublishRequest, "topic", s.publish),
        _Call("GET", f"{_TOPIC}/subscriptions", attached, "topic", s.list_topic_subscriptions),
    ]


def _subscription_calls(s: Service) -> list[_Call]:
    p, path, name = protos, _SUBSCRIPTION, "subscription"
    everything, every = f"{_PROJECT}/subscriptions", p.ListSubscriptionsRequest
    deadline = p.ModifyAckDeadlineRequest
    return [
        _Call("GET", everything, every, "project", s.list_subscriptions),
        _Call("PUT", path, p.Subscription, "name", s.create_subscription),
        _Call("GET", path, p.GetSubscriptionRequest, name, s.get_subscription),
        _Call("PATCH", path, p.UpdateSubscriptionRequest, f"{name}.name", s.update_subscription),
        _Call("DELETE", path, p.DeleteSubscriptionRequest, name, s.delete_subscription),
        _Call("POST", f"{path}:pull", p.PullRequest, name, s.pull, p.PullResponse),
        _Call("POST", f"{path}:acknowledge", p.AcknowledgeRequest, name, s.acknowledge),
        _Call("POST", f"{path}:modifyAckDeadline", deadline, name, s.modify_ack_deadline),
        _Call("POST", f"{path}:seek", p.SeekRequest, name, s.seek),
        _Call("POST", f"{path}:detach", p.DetachSubscriptionRequest, name, s.detach_subscription),
    ]


def _policy_calls(service: Service, path: str) -> list[_Call]:
    s, p = service, protos
    named = (
        ("GET", "getIamPolicy", p.GetIamPolicyRequest, s.get_iam_policy),
        ("POST", "setIamPolicy", p.SetIamPolicyRequest, s.set_iam_policy),
        ("POST", "testIamPermissions", p.TestIamPermissionsRequest, s.test_iam_permissions),
    )
    return [
        _Call(verb, f"{path}:{name}", request, "resource", handler)
        for verb, name, request, handler in named
    ]


def build_app(service: Service) -> web.Application:
    """The application with one route per call."""
    app = web.Application(client_max_size=_BODY_BYTES_MAX, middlewares=[_google_errors])
    for call in _calls(service):
        app.router.add_route(call.verb, call.path, _route(call))
    return app


def _route(call: _Call) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        message = await _read(request, call)
        _name(message, call.name_field, request)
        result = await call.handler(message)
        if isinstance(result, bytes):
            result = call.answer.FromString(result)
        return web.json_response(json_format.MessageToDict(result))

    return answer


async def _read(request: web.Request, call: _Call) -> Any:
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
        known = {404: "NOT_FOUND", 405: "UNIMPLEMENTED", 413: "INVALID_ARGUMENT"}
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
