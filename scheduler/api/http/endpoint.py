"""One endpoint as a value: the route and its documentation are made from the same handler."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar, get_args, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.access import Right
from core.errors import BadInput, Fault
from core.submission import shown, unknown
from scheduler.api.caller import caller_of
from scheduler.api.http.direct_routes import Dispatch
from scheduler.api.http.gate import Gate
from scheduler.api.http.params import Param, Query, no_query, read_query
from scheduler.api.http.problems import JSON, BadJson, WrongMediaType
from scheduler.api.services import Services
from scheduler.submission.unstorable import refuse_unstorable

Handler = Callable[[Request, Query], Awaitable[Response]]
_GUARDED = (401, 403, 429, 503)
"""What an endpoint that needs a right may answer: its check needs the database."""
_Marked = TypeVar("_Marked", bound=Callable[..., Awaitable[object]])


@dataclass(frozen=True, slots=True)
class ResponseDoc:
    """A successful answer, for the documentation."""

    doc: str
    shape: type[msgspec.Struct] | None = None
    """None: not JSON."""
    example: Mapping[str, object] = field(default_factory=dict)
    """What differs from the usual example of its shape."""
    text: str = ""
    """The example of what is not JSON."""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    many: bool = False
    """A list of these, without an object around it."""


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON body, for the documentation."""

    schema: Mapping[str, object]
    examples: str
    """Their name among the requests of examples.yaml."""
    required: bool = True
    content_types: tuple[str, ...] = ()
    """In which it may come besides."""
    only: tuple[str, ...] = ()
    """In which alone it may come: it is not JSON."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method on one path."""

    method: str
    path: str
    right: Right | None
    """What a caller needs; None: nothing (PUBLIC)."""
    summary: str
    tag: str
    handle: Handler
    answers: Mapping[int, ResponseDoc]
    params: tuple[Param, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers it reads, with their meaning."""
    body: Body | None = None
    errors: tuple[int, ...] = ()
    lenient: bool = False
    """Other systems' clients may send parameters that only their server knew."""


class Routes:
    """The handlers of one subject. Each that is marked with `route` is served: the first paragraph
    of its docstring is its summary, what it returns is the shape of its answer, and of `request`,
    `query` and `caller` it takes what it needs."""

    tag: ClassVar[str]
    lenient: ClassVar[bool] = False
    """Other systems' clients may send parameters that only their server knew."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def endpoints(self) -> list[Endpoint]:
        """What is served, in the order in which it is written."""
        marked = {name: getattr(found, "bind", None) for name, found in vars(type(self)).items()}
        return [bind(self, getattr(self, name)) for name, bind in marked.items() if bind]


def route(
    at: str,
    right: Right | None,
    done: str | ResponseDoc | Mapping[int, str | ResponseDoc],
    *,
    params: tuple[Param, ...] = (),
    headers: Mapping[str, str] | None = None,
    body: Body | None = None,
    errors: tuple[int, ...] = (),
) -> Callable[[_Marked], _Marked]:
    """Serves a handler of `Routes`. `at`: method and path. `right`: what a caller needs. `done`:
    what its answers mean, by status; one alone is 200. `errors`: beside the ones that its kind
    of request always has."""
    method, path = at.split()
    usual = ((400, 413, 415) if body is not None else ()) + (() if right is None else _GUARDED)
    answers = done if isinstance(done, Mapping) else {200: done}

    def bind(on: Routes, handler: Callable[..., Awaitable[object]]) -> Endpoint:
        may_be_wrong = not on.lenient or params or body or "{" in path
        return Endpoint(
            method=method,
            path=path,
            right=right,
            summary=_summary(handler),
            tag=on.tag,
            handle=_answering(handler, next(iter(answers))),
            answers={status: _documented(words, handler) for status, words in answers.items()},
            params=params,
            headers=headers or {},
            body=body,
            errors=(*errors, *usual, *((422,) if may_be_wrong else ())),
            lenient=on.lenient,
        )

    def mark(handler: _Marked) -> _Marked:
        handler.__dict__["bind"] = bind
        return handler

    return mark


def _summary(handler: Callable[..., object]) -> str:
    return " ".join((handler.__doc__ or "").partition("\n\n")[0].split()).rstrip(".")


def _documented(words: str | ResponseDoc, handler: Callable[..., object]) -> ResponseDoc:
    if isinstance(words, ResponseDoc):
        return words
    shape = get_type_hints(handler)["return"]
    several = get_args(shape)
    return ResponseDoc(words, several[0] if several else shape, many=bool(several))


def _answering(handler: Callable[..., Awaitable[object]], status: int) -> Handler:
    """The handler with what it takes of a request, its value as JSON."""
    wants = tuple(inspect.signature(handler).parameters)

    async def handle(request: Request, query: Query) -> Response:
        given = {"request": request, "query": query}
        if "caller" in wants:
            given["caller"] = caller_of(request)
        found = await handler(**{name: given[name] for name in wants})
        return found if isinstance(found, Response) else reply(found, status)

    return handle


def routes(endpoints: Sequence[Endpoint], gate: Gate) -> list[Route]:
    """One route per path, so that a wrong method is told every right one."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [
        Route(path, _dispatcher(methods, gate), methods=list(methods))
        for path, methods in by_path.items()
    ]


def direct_paths(served: Sequence[Route]) -> dict[tuple[str, str], Dispatch]:
    """Method and path → what answers there, of the paths without parameters."""
    return {
        (method, route.path): route.endpoint
        for route in served
        for method in route.methods or ()
        if "{" not in route.path and method != "HEAD"
    }


def _dispatcher(methods: Mapping[str, Endpoint], gate: Gate) -> Dispatch:
    defaults = {method: no_query(endpoint.params) for method, endpoint in methods.items()}

    async def dispatch(request: Request) -> Response:
        # Starlette lets HEAD through where GET is.
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
        if endpoint.right is None:
            gate.count_public(request)
        else:
            request.state.caller = await gate.admit(request, endpoint.right)
        if not request.scope["query_string"]:
            return await endpoint.handle(request, defaults[endpoint.method])
        query = read_query(request, endpoint.params, lenient=endpoint.lenient)
        return await endpoint.handle(request, query)

    return dispatch


def reply(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON out."""
    return Response(msgspec.json.encode(value), status, headers, media_type=JSON)


async def read_json(request: Request) -> object:
    """The body as plain values; BadJson says where it breaks."""
    _refuse_other_types(request)
    return decode(await request.body())


async def read_object(
    request: Request, known: Sequence[str], *, optional: bool = False
) -> Mapping[str, object]:
    """A small object; unknown fields are refused. `optional`: it may be left out altogether."""
    if optional and not (await request.body()).strip():
        return {}
    data = await read_json(request)
    if optional and data is None:
        return {}
    refuse_unstorable(data)
    if not isinstance(data, dict):
        raise BadInput([Fault("body", shown(data), "an object")])
    faults = [unknown("field", str(key), known) for key in data if key not in known]
    if faults:
        raise BadInput(faults)
    return data


def decode(raw: bytes) -> object:
    """JSON, or BadJson that says where it breaks."""
    if not raw:
        raise BadJson("the body is empty, expected a JSON object")
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise BadJson("the body is nested too deeply to be read") from None
    except UnicodeDecodeError as error:
        raise BadJson(f"the body is not UTF-8: {error.reason}") from None
    except msgspec.DecodeError as error:
        raise BadJson(f"the body is not JSON that we can read: {_where(raw, str(error))}") from None


def _where(raw: bytes, text: str) -> str:
    """msgspec's own words, with line and column after its byte number."""
    head, found, tail = text.rpartition("(byte ")
    if not found:
        return f"{text} (after {len(raw)} bytes)" if "truncated" in text else text
    at = int(tail.rstrip(")"))
    before = raw[:at]
    line = before.count(b"\n") + 1
    column = at - (before.rfind(b"\n") + 1) + 1
    return f"{head}at byte {at} (line {line}, column {column})"


def _refuse_other_types(request: Request) -> None:
    sent = request.headers.get("content-type")
    if sent is not None:
        kind = sent.partition(";")[0].strip().lower()
        if kind != JSON and not (kind.startswith("application/") and kind.endswith("+json")):
            raise WrongMediaType(f"Content-Type: got {sent[:80]!r}, expected {JSON}")
    refuse_encodings(request)


def refuse_encodings(request: Request) -> None:
    """What is compressed may be of any size."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise WrongMediaType(f"Content-Encoding: got {encoding[:80]!r}, expected none")
