"""Somebody writes a path or a method in a way that the check of the right does not recognise."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from tests.attacks.intruders import SECRET, Intruder, victim_job
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

PATHS = (
    "/api/v1/health/../jobs",
    "/api/v1/health/%2e%2e/jobs",
    "/api/v1/health%2f..%2fjobs",
    "/health/..;/api/v1/jobs",
    "//api/v1/jobs",
    "/api//v1/jobs",
    "/API/V1/JOBS",
    "/api/v1/jobs/",
    "/api/v1/jobs%00",
    "/api/v1/jobs;/health",
    "/api/v1/jobs?/api/v1/health",
    "/api/v1/jobs#/api/v1/health",
    "/%61pi/v1/jobs",
    "http://127.0.0.1/api/v1/jobs",
)


def raw(up: Stack, head: str) -> bytes:
    """What the server answers to these very bytes."""
    at = urlsplit(up.run["api"])
    with socket.create_connection((at.hostname or "", at.port or 0), timeout=10) as line:
        line.sendall(f"{head}\r\nHost: {at.netloc}\r\nConnection: close\r\n\r\n".encode())
        found = b""
        while part := line.recv(65536):
            found += part
    return found


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_no_spelling_of_a_path_passes_the_gate(up: Stack, method: str, path: str) -> None:
    """401, 404, or an error of the client: never what the route would tell."""
    status = int(raw(up, f"{method} {path} HTTP/1.1").split()[1])
    assert 400 <= status < 500


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "get", "OPTIONS", "PUT"])
def test_no_other_method_passes(up: Stack, method: str) -> None:
    """Nor does a header that asks for another method count."""
    status = int(raw(up, f"{method} /api/v1/jobs HTTP/1.1").split()[1])
    assert 400 <= status < 500
    more = "GET /api/v1/jobs HTTP/1.1\r\nX-Http-Method-Override: POST"
    assert int(raw(up, more).split()[1]) == 401


@pytest.mark.parametrize("who", ["no key", "member of another tenant"])
def test_encoded_ids_lead_to_no_other_job(up: Stack, intruder: Intruder) -> None:
    """A slash, dots or a null in the place of an id are no way to another tenant's job."""
    job = victim_job(up)
    ids = (
        f"%2e%2e%2f{job}",
        f"x%2f..%2f{job}",
        f"{job}%00",
        f"{job}%2flogs",
        f"{job}%20",
        f"{job}.",
    )
    with intruder.calls(up) as line:
        answers = [
            line.send(
                httpx.Request(
                    "GET", f"{up.run['api']}/api/v1/jobs/{one}{part}", headers=line.headers
                )
            )
            for one in ids
            for part in ("", "/logs", "/artifacts")
        ]
    assert [a.text for a in answers if not 400 <= a.status_code < 500 or SECRET in a.text] == []
