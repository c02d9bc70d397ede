"""One endpoint as a value: the route and its documentation are made from the same row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.errors import BadInput, Fault
from core.submission import shown, unknown
from scheduler.api.http.params import Param, Query, no_query, read_query
from scheduler.api.http.problems import JSON, BadJson, WrongMediaType
from scheduler.submission.unstorable import refuse_unstorable

PREFIX = "/api/v1"
Handler = Callable[[Request, Query], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ResponseDoc:
    """A successful answer, for the documentation."""

    doc: str
    shape: type[msgspec.Struct] | None = None
    """None: not JSON."""
    example: object = None
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    many: bool = False
    """A list of these, without an object around it."""


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON body, for the documentation."""

    schema: Mapping[str, object]
    examples: Mapping[str, object]
    required: bool = True
    content_types: tuple[str, ...] = ()
    """In which it may come besides."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method on one path."""

    method: str
    path: str
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


def routes(endpoints: Sequence[Endpoint]) -> list[Route]:
    """One route per path, so that a wrong method is told every right one."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [
        Route(path, _dispatcher(methods), methods=list(methods))
        for path, methods in by_path.items()
    ]


def _dispatcher(methods: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    defaults = {method: no_query(endpoint.params) for method, endpoint in methods.items()}

    async def dispatch(request: Request) -> Response:
        # Starlette lets HEAD through where GET is.
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
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


async def read_optional_object(request: Request, known: Sequence[str]) -> Mapping[str, object]:
    """A small object that may be left out altogether; unknown fields are refused."""
    raw = await request.body()
    if not raw.strip():
        return {}
    _refuse_other_types(request)
    data = decode(raw)
    if data is None:
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
