"""A job finds tokens of its tenant's account where Google's libraries look for them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.token_endpoint import CALL_TIMEOUT_S, MetadataRequest, TokenEndpoint, answer, parsed
from core.clock import SystemClock
from core.job_fields import WorkerSpec
from core.job_tokens import AccessToken, TokenKind
from tests.agent.runner_rig import RunnerRig, order_for

ACCOUNT = "jobs@acme.iam.gserviceaccount.com"
TOKEN = AccessToken("ya29.tenant", 1000.0, ACCOUNT)
FLAVOR = {"metadata-flavor": "Google"}
DEFAULT = "/computeMetadata/v1/instance/service-accounts/default/"
LIBRARY = """
import google.auth, google.auth.transport.requests
from google.auth import compute_engine
call = google.auth.transport.requests.Request()
own = compute_engine.Credentials()
own.refresh(call)
found, project = google.auth.default()
found.refresh(call)
print(own.token, own.service_account_email, found.token, project)
"""


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/", 200, "computeMetadata/\n"),
        (f"{DEFAULT}email", 200, ACCOUNT),
        (f"{DEFAULT}identity?audience=x", 404, "identity was not found\n"),
        (f"{DEFAULT.replace('default', 'vm@compute')}token", 404, "vm@compute was not found\n"),
        ("/computeMetadata/v1/project/project-id", 200, "acme"),
        ("/computeMetadata/v1/instance/attributes/zen-scheduler-keys", 404, None),
    ],
)
def test_what_it_answers(path: str, status: int, body: str | None) -> None:
    """The account and its token, and nothing of the VM."""
    said = answer(MetadataRequest("GET", path, FLAVOR), TOKEN, 400.0)
    assert said.status == status
    assert body is None or said.body == body


def test_the_token_says_how_long_it_lasts() -> None:
    said = answer(MetadataRequest("GET", f"{DEFAULT}token?scopes=x", FLAVOR), TOKEN, 400.0)
    assert json.loads(said.body) == {
        "access_token": "ya29.tenant",
        "expires_in": 600,
        "token_type": "Bearer",
    }


@pytest.mark.parametrize(
    ("method", "headers", "now", "status"),
    [
        ("GET", {}, 0.0, 403),
        ("GET", {**FLAVOR, "x-forwarded-for": "10.0.0.1"}, 0.0, 403),
        ("POST", FLAVOR, 0.0, 405),
        ("GET", FLAVOR, 1000.0, 503),
    ],
)
def test_what_it_refuses(method: str, headers: dict[str, str], now: float, status: int) -> None:
    """A request that a page could make, and one for a token that has ended."""
    assert answer(MetadataRequest(method, f"{DEFAULT}token", headers), TOKEN, now).status == status


def test_a_line_that_is_no_request() -> None:
    assert parsed("GET / HTTP/1.1\r\nMetadata-Flavor: Google\r\n\r\n").headers == FLAVOR
    with pytest.raises(ValueError, match="values to unpack"):
        parsed("nonsense\r\n\r\n")


async def test_another_user_is_refused_before_it_asks() -> None:
    """Its connection is closed, and does not count against the bound of the job's connections."""
    endpoint = TokenEndpoint(os.geteuid() + 1, lambda: TOKEN)
    await endpoint.start()
    host, _, port = endpoint.environment["GCE_METADATA_HOST"].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(CALL_TIMEOUT_S / 2):
        assert await reader.read() == b""
    assert endpoint._open == 0
    writer.close()
    endpoint.close()


async def test_googles_own_library_in_a_job(tmp_path: Path) -> None:
    """compute_engine.Credentials gives the tenant's token, and so does google.auth.default."""
    rig = RunnerRig(tmp_path)
    token = replace(TOKEN, ends_at=SystemClock().now().timestamp() + 3600)
    order = order_for(sys.executable, "-c", LIBRARY, tokens={TokenKind.GOOGLE: token})
    rig.runner.start(replace(order, spec=replace(order.spec, google_token=True)))
    ended = await rig.end()
    assert ended.exit_code == 0, await rig.log()
    assert (await rig.log()).split()[-4:] == ["ya29.tenant", ACCOUNT, "ya29.tenant", "acme"]


async def test_a_start_without_its_token_fails(tmp_path: Path) -> None:
    """An older scheduler, or one that was not asked."""
    rig = RunnerRig(tmp_path)
    spec = WorkerSpec("j1", user_id="u1", tenant_id="acme", command=("true",), google_token=True)
    rig.runner.start(replace(order_for("true"), spec=spec))
    ended = await rig.end()
    assert (ended.exit_code, "no token" in ended.reason) == (126, True)
