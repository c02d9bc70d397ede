"""Instance identity tokens as Google documents them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from google.auth import jwt

from sim.cloud.identity_issuer import CERTIFICATES, KEY_SET, VALID_S, IdentityIssuer
from sim.cloud.metadata_server import IDENTITY, ROOT, MetadataServer, VmMetadata
from tests.core.identity_tokens_contract import VM

pytestmark = pytest.mark.slow
NOW = 1_800_000_000.0
FLAVOR = {"Metadata-Flavor": "Google"}


@pytest.fixture
def issuer() -> IdentityIssuer:
    return IdentityIssuer("zen-test", 1071284184436, lambda: NOW)


@pytest.fixture
async def guest(issuer: IdentityIssuer) -> AsyncIterator[aiohttp.ClientSession]:
    server = MetadataServer(VmMetadata(VM, "zen-test", 1071284184436), issuer)
    address = await server.start()
    async with aiohttp.ClientSession(f"http://{address}", headers=FLAVOR) as session:
        yield session
    await server.stop()


async def test_the_full_form_names_the_machine(guest: aiohttp.ClientSession) -> None:
    """Claims, their types and the header are Google's."""
    query = {"audience": "zen:abc", "format": "full"}
    async with guest.get(f"/{ROOT}/{IDENTITY}", params=query) as answer:
        token = await answer.text()
        assert answer.headers["Metadata-Flavor"] == "Google"
    claims = jwt.decode(token, verify=False)  # type: ignore[no-untyped-call]
    header = jwt.decode_header(token)  # type: ignore[no-untyped-call]
    assert (header["alg"], header["typ"], len(header["kid"])) == ("RS256", "JWT", 40)
    assert claims.pop("sub") == claims.pop("azp")
    assert claims == {
        "iss": "https://accounts.google.com",
        "aud": "zen:abc",
        "iat": int(NOW),
        "exp": int(NOW) + VALID_S,
        "email": "1071284184436-compute@developer.gserviceaccount.com",
        "email_verified": True,
        "google": {
            "compute_engine": {
                "project_id": "zen-test",
                "project_number": 1071284184436,
                "zone": "us-central1-a",
                "instance_id": "4567890123456789012",
                "instance_name": "zen-vm-aaaa",
                "instance_creation_timestamp": 1_700_000_000,
            }
        },
    }


async def test_the_standard_form_names_no_machine(guest: aiohttp.ClientSession) -> None:
    """It is what one gets without asking for more."""
    async with guest.get(f"/{ROOT}/{IDENTITY}", params={"audience": "a"}) as answer:
        claims = jwt.decode(await answer.text(), verify=False)  # type: ignore[no-untyped-call]
    assert "google" not in claims


@pytest.mark.parametrize("query", [{}, {"audience": ""}, {"audience": "a", "format": "long"}])
async def test_bad_questions(guest: aiohttp.ClientSession, query: dict[str, str]) -> None:
    """An audience is required."""
    async with guest.get(f"/{ROOT}/{IDENTITY}", params=query) as answer:
        assert answer.status == 400


async def test_a_vm_without_an_account_has_no_token() -> None:
    """As on Google: 404."""
    server = MetadataServer(VmMetadata(VM, "zen-test", 7))
    address = await server.start()
    url = f"http://{address}/{ROOT}/{IDENTITY}?audience=a"
    async with aiohttp.ClientSession(headers=FLAVOR) as session, session.get(url) as answer:
        assert answer.status == 404
    await server.stop()


async def test_both_forms_of_the_public_key_are_served(issuer: IdentityIssuer) -> None:
    """Certificates by key id, and a key set; both say how long they may be kept."""
    app = web.Application()
    issuer.add_routes(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession(url) as session:
        async with session.get(CERTIFICATES) as answer:
            certificates = await answer.json()
            assert "max-age=" in answer.headers["Cache-Control"]
        async with session.get(KEY_SET) as answer:
            (public,) = (await answer.json())["keys"]
    await runner.cleanup()
    assert list(certificates) == [public["kid"]]
    assert (public["kty"], public["alg"], public["e"]) == ("RSA", "RS256", "AQAB")
