"""The OpenAPI document: complete, with examples that are true."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from core.job_fields import FIELDS
from core.submission import parse_submission
from core.timers import Timers
from core.unified_job import is_manifest, native_of_manifest
from scheduler.api.examples import example_of, requests
from scheduler.api.http.app import create_app, endpoints
from scheduler.api.http.docs_page import render
from tests.scheduler.api.fakes import House


def walk(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from walk(part)
    elif isinstance(value, list):
        for part in value:
            yield from walk(part)


async def test_document_has_every_route_with_errors_and_examples() -> None:
    """Each endpoint stands in the document with parameters, answers, examples and the error."""
    house = House()
    table = endpoints(house.services())
    async with house.client() as client:
        document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert document["info"]["title"]
    assert document["info"]["version"] == "9.9"
    operations = []
    for endpoint in table:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        operations.append(operation["operationId"])
        named = {p["name"] for p in operation["parameters"] if p["in"] == "query"}
        assert named == {param.name for param in endpoint.params}
        in_path = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert all("{" + name + "}" in endpoint.path for name in in_path)
        assert endpoint.path.count("{") == len(in_path)
        for status, answer in operation["responses"].items():
            assert answer["description"]
            (content,) = answer["content"].values()
            if int(status) >= 400 and int(status) not in endpoint.answers:  # else it is a page
                assert content["schema"] == {"$ref": "#/components/schemas/ErrorOut"}
            else:
                assert content["example"]
        assert "500" in operation["responses"]
    assert len(set(operations)) == len(operations)


async def test_every_reference_leads_somewhere() -> None:
    """No $ref points at a schema that is not there."""
    document = create_app(House().services()).openapi()
    references = {node["$ref"] for node in walk(document) if "$ref" in node}
    assert references
    for reference in references:
        node: object = document
        for word in str(reference).removeprefix("#/").split("/"):
            assert isinstance(node, dict)
            node = node[word]


def test_submission_schema_is_the_check() -> None:
    """The document's submission has exactly the fields that are checked."""
    document = create_app(House().services()).openapi()
    content = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]
    schema, manifest = content["application/json"]["schema"]["anyOf"]
    assert manifest["properties"]["kind"] == {"const": "UnifiedJob"}
    assert content["application/yaml"] == content["application/json"]
    assert set(schema["properties"]) == set(FIELDS)
    assert schema["additionalProperties"] is False


def test_examples_have_the_shape_they_show() -> None:
    """Each example is exactly what the type of its answer writes: no field more, none less."""
    for endpoint in endpoints(House().services()):
        for answer in endpoint.answers.values():
            if answer.shape is not None:
                example = {**example_of(answer.shape), **answer.example}
                made = msgspec.convert(example, answer.shape)
                assert msgspec.json.decode(msgspec.json.encode(made)) == example, endpoint.path


def test_example_submissions_are_accepted() -> None:
    """Every example of a submission passes the check."""
    for request in requests("submissions").values():
        native = native_of_manifest(request) if is_manifest(request) else request
        assert parse_submission(native, Timers(), "fresh").command


async def test_page_shows_every_route_and_needs_nothing_from_elsewhere() -> None:
    """A laptop without network can read it; hostile text in it stays text."""
    house = House()
    async with house.client() as client:
        document = (await client.get("/openapi.json")).json()
        answer = await client.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    for path in document["paths"]:
        assert f"<code>{path}</code>" in answer.text
    assert "src=" not in answer.text
    assert "://" not in answer.text.replace("http://127.0.0.1", "").replace("gs://", "")
    hostile = {"info": {"title": "<script>", "version": "1"}, "paths": {}}
    assert "<script>" not in render(hostile)
