"""Google's identity tokens, as the pretend cloud issues them and google-auth checks them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web
from google.auth import jwt

from agent.metadata import MetadataClient
from core.clock import SystemClock
from core.worker_identity import IdentityRefused, IdentityUnsure, VmIdentity
from migs.identity_tokens import GoogleIdentityTokens, open_identity_tokens
from migs.issuer_keys import IssuerKeys
from sim.cloud.identity_issuer import CERTIFICATES, IdentityIssuer, signed
from sim.cloud.metadata_server import MetadataServer, VmMetadata
from sim.cloud.model import VmInfo
from tests.builders import settings
from tests.core.identity_tokens_contract import AUDIENCE, PROJECT, VM, IdentityTokensContract

pytestmark = pytest.mark.slow


class GoogleRig:
    """The pretend cloud's issuer behind HTTP."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._age_s = 0.0
        self.issuer = IdentityIssuer(PROJECT, 7, self._now)
        self.url = ""
        self.tokens: GoogleIdentityTokens

    def _now(self) -> float:
        return self._clock.now().timestamp() - self._age_s

    async def issue(
        self, vm: VmInfo, audience: str, *, age_s: float = 0.0, project: str = PROJECT
    ) -> str:
        self._age_s = age_s
        self.issuer._project = project
        try:
            return await self.issuer.token(vm, audience, full=True)
        finally:
            self._age_s, self.issuer._project = 0.0, PROJECT

    async def signed(self, claims: Mapping[str, Any]) -> str:
        """Words of any kind under the issuer's real key."""
        key = await self.issuer._key()
        return signed(key, claims)


@pytest.fixture
async def rig() -> AsyncIterator[GoogleRig]:
    rig = GoogleRig()
    app = web.Application()
    rig.issuer.add_routes(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    rig.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    cloud = {"compute_url": rig.url, "identity_certs_url": None, "calls_per_minute": 1}
    rig.tokens = open_identity_tokens(settings(project=PROJECT, cloud=cloud), SystemClock())
    yield rig
    await runner.cleanup()


class TestGoogleIdentityTokens(IdentityTokensContract):
    """The contract, over HTTP and RS256."""


async def test_an_agent_fetches_a_token_that_the_scheduler_believes(rig: GoogleRig) -> None:
    """Agent, metadata server, certificates and google-auth fit together."""
    server = MetadataServer(VmMetadata(VM, PROJECT, 7), rig.issuer)
    address = await server.start()
    try:
        token = await MetadataClient(address).identity_token(AUDIENCE)
    finally:
        await server.stop()
    said = await rig.tokens.verify(token, AUDIENCE)
    assert isinstance(said, VmIdentity)
    assert (said.instance_id, said.instance_name) == (str(VM.id), VM.name)


async def test_a_token_that_names_no_machine_is_refused(rig: GoogleRig) -> None:
    """The standard form says only which account a VM has; any holder of that account's key could
    have asked for it."""
    token = await rig.issuer.token(VM, AUDIENCE, full=False)
    assert isinstance(await rig.tokens.verify(token, AUDIENCE), IdentityRefused)


async def test_a_vm_of_another_project_is_refused(rig: GoogleRig) -> None:
    """Google signs for everybody's VMs."""
    token = await rig.issue(VM, AUDIENCE, project="somebody-else")
    assert isinstance(await rig.tokens.verify(token, AUDIENCE), IdentityRefused)


ODD: list[dict[str, Any]] = [
    {"iss": "https://evil.example"},
    {"iss": None},
    {"google": None},
    {"google": {"compute_engine": []}},
    {"google": {"compute_engine": {"project_id": PROJECT}}},
    {"google": {"compute_engine": {"project_id": PROJECT, "zone": 1, "instance_id": 2}}},
    {"exp": "never"},
    {"iat": None},
    {"aud": [AUDIENCE]},
]


@pytest.mark.parametrize("change", ODD, ids=range(len(ODD)))
async def test_odd_claims_are_refused(rig: GoogleRig, change: dict[str, Any]) -> None:
    """A signature alone is not enough: every claim has to be as Google documents it."""
    good = jwt.decode(await rig.issue(VM, AUDIENCE), verify=False)  # type: ignore[no-untyped-call]
    token = await rig.signed({**good, **change})
    assert isinstance(await rig.tokens.verify(token, AUDIENCE), IdentityRefused)


async def test_a_key_of_another_issuer_proves_nothing(rig: GoogleRig) -> None:
    """A token that somebody signed with a key that is not published."""
    stranger = GoogleRig()
    token = await stranger.issue(VM, AUDIENCE)
    assert isinstance(await rig.tokens.verify(token, AUDIENCE), IdentityRefused)


async def test_an_issuer_that_does_not_answer_proves_neither(rig: GoogleRig) -> None:
    """Nobody is refused because the certificates cannot be had."""
    nowhere = GoogleIdentityTokens(PROJECT, IssuerKeys("http://127.0.0.1:9/certs", SystemClock()))
    with pytest.raises(IdentityUnsure, match="certs"):
        await nowhere.verify(await rig.issue(VM, AUDIENCE), AUDIENCE)


def test_certificates_are_googles_unless_said() -> None:
    """A pretend cloud's own where Compute is one, what the settings name if they do."""

    def url(compute: str | None, said: str | None) -> str:
        cloud = {"compute_url": compute, "identity_certs_url": said}
        return open_identity_tokens(settings(cloud=cloud), SystemClock())._keys._url

    google = "https://www.googleapis.com/oauth2/v1/certs"
    assert url(None, None) == google
    assert url("https://compute.example", None) == google
    assert url("http://127.0.0.1:8090/", None) == f"http://127.0.0.1:8090{CERTIFICATES}"
    assert (
        url("http://127.0.0.1:8090", "https://keys.example/certs") == "https://keys.example/certs"
    )
