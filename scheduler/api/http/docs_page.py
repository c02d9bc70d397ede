"""The description of the API as a page that needs nothing from elsewhere: it also works offline."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
details { border: 1px solid #8884; border-radius: 6px; margin: .4rem 0; }
summary { cursor: pointer; padding: .5rem .75rem; }
summary b { display: inline-block; width: 4.5rem; font-family: ui-monospace, monospace; }
summary code { font-size: .95rem; } summary span { opacity: .75; margin-left: .75rem; }
.inner { padding: 0 .75rem .75rem; } td, th { text-align: left; padding: .15rem .8rem .15rem 0; }
pre { background: #8882; padding: .6rem; border-radius: 6px; overflow: auto; font-size: .85rem; }
"""
Json = Mapping[str, Any]


def render(document: Json) -> str:
    """One page of the OpenAPI document: routes, parameters, bodies and answers with examples."""
    title = f"{document['info']['title']} {document['info']['version']}"
    body = "".join(_routes(document))
    about = html.escape(str(document["info"].get("description", "")))
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><p>{about}</p>"
        f"<p>For tools: <a href='/openapi.json'>/openapi.json</a>.</p>{body}</html>"
    )


def _routes(document: Json) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            head = f"<b>{method.upper()}</b><code>{html.escape(path)}</code>"
            words = html.escape(str(route.get("summary", "")))
            inner = "".join(_route(route))
            yield (
                f"<details><summary>{head}<span>{words}</span></summary>"
                f"<div class=inner>{inner}</div></details>"
            )


def _route(route: Json) -> Iterator[str]:
    if route.get("description"):
        yield f"<p>{html.escape(route['description'])}</p>"
    if route.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{html.escape(p['name'])}</code><td>{html.escape(p['in'])}"
            f"<td>{html.escape(p.get('description', ''))}"
            for p in route["parameters"]
        )
        yield f"<table><tr><th>parameter<th>in<th>meaning{rows}</table>"
    for kind, content in route.get("requestBody", {}).get("content", {}).items():
        yield from _content(f"body, {kind}", content)
    for status, answer in route.get("responses", {}).items():
        yield f"<p><b>{html.escape(status)}</b> {html.escape(answer.get('description', ''))}</p>"
        for kind, content in answer.get("content", {}).items():
            yield from _content(kind, content)


def _content(title: str, content: Json) -> Iterator[str]:
    examples = {name: e.get("value") for name, e in content.get("examples", {}).items()}
    if "example" in content:
        examples["example"] = content["example"]
    for name, value in examples.items():
        shown = json.dumps(value, indent=2, ensure_ascii=False)
        yield f"<div>{html.escape(title)}: {html.escape(name)}</div><pre>{html.escape(shown)}</pre>"
