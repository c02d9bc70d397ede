"""The page of all REST routes and errors: the table of endpoints in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cli.reference.markdown import MADE_BY, cell, code, table

if TYPE_CHECKING:
    from scheduler.api.http.endpoint import Endpoint

_HEAD = f"""\
# REST routes

{MADE_BY}
How to use them: [the REST API in the user guide](../user/rest.md). A running service has the same
with the shapes of all answers: `/openapi.json` for tools, `/docs` for people.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, "## Errors\n", _errors()]
    tagged = sorted(all_endpoints(), key=lambda endpoint: endpoint.tag.startswith("compatible"))
    order = {endpoint.tag: n for n, endpoint in reversed(list(enumerate(tagged)))}
    tagged.sort(key=lambda endpoint: order[endpoint.tag])
    for tag, rows in groupby(tagged, key=lambda endpoint: endpoint.tag):
        parts.append(f"## {tag[0].upper()}{tag[1:]}\n")
        parts += ["\n".join(_route(endpoint)) for endpoint in rows]
    return "\n".join(parts)


def all_endpoints() -> list[Endpoint]:
    """The rows alone: nobody calls their handlers here, so they stand on nothing."""
    from core.clock import SystemClock
    from scheduler.api.http.app import endpoints
    from scheduler.api.services import Services

    nothing: dict[str, Any] = {field.name: object() for field in fields(Services)}
    return endpoints(Services(**nothing | {"clock": SystemClock()}))


def _errors() -> str:
    from scheduler.api.http.problems import STATUS

    rows = sorted(
        {(status, kind.code, (kind.__doc__ or "").split("\n\n")[0]) for kind, status in STATUS}
    )
    return table(
        ("Status", "`code`", "Meaning"),
        ((str(status), code(name), cell(words)) for status, name, words in rows),
    )


def _route(endpoint: Endpoint) -> Iterator[str]:
    yield f"### {endpoint.method} {endpoint.path}\n"
    yield f"{endpoint.summary}.\n" if endpoint.summary[-1] not in ".?" else f"{endpoint.summary}\n"
    rows: list[tuple[str, ...]] = [
        (code(p.name), p.kind, cell(p.doc) + _default(p.default)) for p in endpoint.params
    ]
    rows += [(code(name), "header", cell(words)) for name, words in endpoint.headers.items()]
    if endpoint.body is not None:
        rows += [(code(name), "body", words) for name, words in _fields(endpoint.body.schema)]
    if rows:
        yield table(("Name", "", "Meaning"), rows)
    answers = [f"{status}: {cell(answer.doc)}" for status, answer in endpoint.answers.items()]
    refusals = ", ".join(map(str, sorted({*endpoint.errors, 500})))
    yield f"Answers {' '.join(answers)} Errors: {refusals}.\n"


def _default(value: object) -> str:
    return "" if value in (None, False) else f" Default: `{value}`."


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a body; of several shapes, those of all."""
    said: dict[str, str] = {}
    for shape in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        for name, words in shape.get("properties", {}).items():
            said.setdefault(name, cell(words.get("description", words.get("type", ""))))
    yield from said.items()
