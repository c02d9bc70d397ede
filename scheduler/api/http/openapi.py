"""The OpenAPI document, made from the table of endpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from core.field_kinds import published
from core.names import JOB_ID
from core.secret_references import SECRET_NAME
from scheduler.api.examples import example_of, requests
from scheduler.api.http.endpoint import Body, Endpoint, ResponseDoc
from scheduler.api.http.params import Param
from scheduler.api.http.problems import JSON, REQUEST_ID, ErrorOut
from stores.code_trees import TREE_ID

_PATH_WORD = re.compile(r"{(\w+)}")
_REF = "#/components/schemas/{name}"
_ERRORS: Mapping[int, str] = {
    400: "The body is not JSON (or YAML, where that is taken); the text says where.",
    403: "The caller has no role with the right that this needs, or the tenant's quota can never "
    "allow it.",
    404: "There is no such thing.",
    409: "It exists with other content, keeps changing, or the id fits several users' jobs.",
    401: "No credentials, or wrong ones: send an API key as bearer token or Basic password.",
    429: "Too many requests, or too many wrong credentials: Retry-After says when to come back.",
    413: "The body is too large; the limit is in the text.",
    415: "The body is not application/json.",
    416: "The file has no such bytes.",
    422: "Something in the request is wrong; `faults` names every field.",
    500: "Our fault; the log has it under the request id.",
    503: "Not at the moment; try again after Retry-After seconds.",
}
_KEYS: Mapping[str, object] = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key: zen_<id>_<secret>."},
    "password": {
        "type": "http",
        "scheme": "basic",
        "description": "The same key as the password, with any name: for older clients.",
    },
}


def _matching(pattern: re.Pattern[str]) -> Mapping[str, object]:
    """Texts that match from their first to their last character, as OpenAPI says it."""
    return {"type": "string", "pattern": published(pattern)}


_TEXT: Mapping[str, object] = {"type": "string", "minLength": 1}
_IN_PATHS: Mapping[str, Mapping[str, object]] = {
    **dict.fromkeys(("job_id", "user_id", "group", "tenant_id"), _matching(JOB_ID)),
    "tree_id": _matching(TREE_ID),
    "letter_id": {**_TEXT, "maxLength": 256},
    "name": _matching(SECRET_NAME),
    "version": {"type": "string", "pattern": "^[0-9]{1,9}$"},
}
"""What a word of a path may be, where the service checks more than that it is there."""
Json = dict[str, object]


def document(endpoints: Sequence[Endpoint], version: str) -> Json:
    """OpenAPI 3.1."""
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pipeline Zen Jobs Scheduler",
            "version": version or "0",
            "description": "Finds GPUs across regions, runs jobs on them, gives the GPUs back.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(endpoints),
            "headers": {REQUEST_ID: _request_id()},
            "securitySchemes": _KEYS,
        },
    }


def _operation(endpoint: Endpoint) -> Json:
    words = re.sub(r"\W+", "_", endpoint.path).strip("_")
    operation: Json = {
        "operationId": f"{endpoint.method.lower()}_{words}",
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "security": [{name: []} for name in _KEYS] if endpoint.right is not None else [],
        "parameters": _parameters(endpoint),
        "responses": {
            **{str(status): _answer(answer) for status, answer in endpoint.answers.items()},
            **{str(status): _error(status) for status in sorted({*endpoint.errors, 500})},
        },
    }
    if endpoint.body is not None:
        operation["requestBody"] = _body(endpoint.body)
    return operation


def _parameters(endpoint: Endpoint) -> list[Json]:
    in_path: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": _IN_PATHS.get(name, _TEXT)}
        for name in _PATH_WORD.findall(endpoint.path)
    ]
    in_headers: list[Json] = [
        {"name": name, "in": "header", "description": doc, "schema": {"type": "string"}}
        for name, doc in endpoint.headers.items()
    ]
    return in_path + [_parameter(p, endpoint) for p in endpoint.params] + in_headers


def _parameter(param: Param, endpoint: Endpoint) -> Json:
    schema = param.schema()
    if endpoint.lenient:  # an empty value is none
        schema = {"anyOf": [schema, {"const": ""}]}
    return {
        "name": param.name,
        "in": "query",
        "required": False,
        "description": param.doc,
        "schema": schema,
    }


def _body(body: Body) -> Json:
    shown = {name: {"value": value} for name, value in requests(body.examples).items()}
    schema = dict(body.schema)
    if not body.required:  # null is none
        schema = {"anyOf": [schema, {"type": "null"}]}
    words = {"schema": schema, "examples": shown}
    content = dict.fromkeys(body.only or (JSON, *body.content_types), words)
    return {"required": body.required, "content": content}


def _answer(answer: ResponseDoc) -> Json:
    schema: Json = _ref(answer.shape) if answer.shape is not None else {"type": "string"}
    example: object = answer.text
    if answer.shape is not None:
        example = {**example_of(answer.shape), **answer.example}
    if answer.many:
        schema, example = {"type": "array", "items": schema}, [example]
    headers: Json = {
        name: {"description": doc, "schema": {"type": "string"}}
        for name, doc in answer.headers.items()
    }
    return {
        "description": answer.doc,
        "headers": headers | {REQUEST_ID: {"$ref": f"#/components/headers/{REQUEST_ID}"}},
        "content": {answer.content_type: {"schema": schema, "example": example}},
    }


def _error(status: int) -> Json:
    content: Json = {"schema": _ref(ErrorOut)}
    if status == 422:
        content["example"] = example_of(ErrorOut)
    return {
        "description": _ERRORS[status],
        "headers": {REQUEST_ID: {"$ref": f"#/components/headers/{REQUEST_ID}"}},
        "content": {JSON: content},
    }


def _ref(shape: type[Struct]) -> Json:
    return {"$ref": _REF.format(name=shape.__name__)}


def _request_id() -> Json:
    return {
        "description": "Names this request in our log; your own X-Request-Id is kept.",
        "schema": {"type": "string"},
    }


def _schemas(endpoints: Sequence[Endpoint]) -> dict[str, object]:
    named: dict[str, type[Struct]] = {ErrorOut.__name__: ErrorOut}
    for endpoint in endpoints:
        for answer in endpoint.answers.values():
            if answer.shape is not None:
                named[answer.shape.__name__] = answer.shape
    ordered = [named[name] for name in sorted(named)]
    _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    return dict(components)
