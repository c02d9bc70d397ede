"""A `zen` that runs in this process, and an API that answers from a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli import client, main
from cli.connection import HttpxConnection

Handler = Callable[[httpx.Request], httpx.Response]


@dataclass
class Api:
    """Answers by (method, path); everything else is 404 in the API's own error shape."""

    routes: dict[tuple[str, str], Handler | Any] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)

    def on(self, method: str, path: str, answer: Handler | Any) -> None:
        self.routes[(method, path)] = answer

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.routes.get((request.method, request.url.path))
        if answer is None:
            return refusal(404, "not_found", f"no such thing: {request.url.path}")
        if callable(answer):
            made: httpx.Response = answer(request)
            return made
        return httpx.Response(200, json=answer)

    def body(self, index: int = -1) -> Any:
        return json.loads(self.requests[index].content or b"null")

    def query(self, index: int = -1) -> dict[str, str]:
        return dict(self.requests[index].url.params)


def refusal(status: int, code: str, text: str) -> httpx.Response:
    """An error as the API shapes it."""
    body = {"error": text, "message": text, "detail": text, "code": code, "faults": []}
    return httpx.Response(status, json=body)


@dataclass
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the state directory, the address or the configuration of the user who runs
    it."""
    for name in (
        "ZEN_API",
        "ZEN_SIM",
        "ZEN_CONFIG",
        "DATABASE_URL",
        "PUBSUB_EMULATOR_HOST",
        "COLUMNS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZEN_HOME", str(tmp_path / "zen"))
    monkeypatch.setenv("ZEN_API", "http://127.0.0.1:8080")
    return tmp_path / "zen"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()

    def connect(address: str) -> HttpxConnection:
        http = httpx.Client(base_url=address, transport=httpx.MockTransport(made.handle))
        return HttpxConnection(http)

    monkeypatch.setattr(client, "connect", connect)
    return made


@pytest.fixture
def zen(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def run(*words: str) -> Ended:
        capfd.readouterr()
        code = main.run(words)
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Ended(code, out, err)

    return run


@pytest.fixture
def job() -> dict[str, Any]:
    """A job as GET /jobs/{id} shows it."""
    return {
        "job_id": "train-7",
        "user_id": "0",
        "tenant_id": "default",
        "name": "line [fit]",
        "state": "running",
        "status": "RUNNING",
        "cluster": "2xa100-40gb",
        "gpu_type": "a100-40gb",
        "gpu_count": 2,
        "priority": 500,
        "command": ["python3", "train.py"],
        "labels": {"team": "vision"},
        "attempt": 1,
        "vm": {
            "name": "pipeline-zen-jobs-2xa100-40gb-us-west1-vm-b4kz",
            "region": "us-west1",
            "zone": "us-west1-b",
            "slots": [0, 1],
        },
        "submitted_at": "2026-11-16T07:00:00.000Z",
        "queued_since": "2026-11-16T07:00:00.000Z",
        "started_at": "2026-11-16T07:00:10.000Z",
        "ended_at": None,
        "deadline_at": "2026-11-23T07:00:10.000Z",
        "exit_code": None,
        "reason": "started",
        "why": "",
        "position": None,
        "progress": {"step": 37, "total": 100},
        "checkpoint_step": 30,
        "cost_usd": 0.1234,
        "retries": {"failures": 0, "retries": 0, "losses": 1, "preemptions": 0},
    }
