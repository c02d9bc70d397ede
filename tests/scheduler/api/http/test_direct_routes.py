"""Paths that are found by one look-up."""

from __future__ import annotations

import pytest

from tests.scheduler.api.fakes import AS_JSON, House, assert_error


async def test_a_path_answers_as_the_router_would() -> None:
    """HEAD and OPTIONS are the router's, GET and POST are found directly; a method that a path does
    not have is told, and so is a path that there is not."""
    async with House().client() as client:
        assert (await client.get("/api/v1/jobs")).status_code == 200
        assert (await client.head("/api/v1/jobs")).status_code == 200
        answer = await client.put("/api/v1/jobs", json={})
        assert_error(answer, 405, "method_not_allowed")
        assert "POST" in answer.headers["Allow"]
        assert_error(await client.get("/api/v1/nothing"), 404, "not_found")


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"command": []}'])
async def test_an_error_of_a_direct_path_has_the_one_shape(content: bytes) -> None:
    """The layer around it tells of it: id of the request, code, faults, security headers."""
    async with House().client() as client:
        answer = await client.post("/api/v1/jobs", content=content, headers=AS_JSON)
    assert_error(answer, answer.status_code, answer.json()["code"])
    assert answer.status_code in (400, 422)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
