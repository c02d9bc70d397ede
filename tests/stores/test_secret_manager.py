"""Secret Manager's protocol, against the pretend one."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from core.errors import SecretRefused, SecretsAway
from core.secret_references import ManagedSecret
from sim.cloud.secret_manager import PretendSecretManager
from stores.secret_manager import SecretManager

Http = TestClient[web.Request, web.Application]
PATH = "/v1/projects/ml-project/secrets"
HF = ManagedSecret("ml-project", "hf")


class Pretend:
    def __init__(self, http: Http, server: PretendSecretManager, client: SecretManager) -> None:
        self.http, self.server, self.client = http, server, client

    async def add(self, value: bytes) -> None:
        data = base64.b64encode(value).decode()
        answer = await self.http.post(f"{PATH}/hf:addVersion", json={"payload": {"data": data}})
        assert answer.status == 200


@pytest.fixture
async def pretend() -> AsyncIterator[Pretend]:
    server, app = PretendSecretManager(), web.Application()
    server.add_routes(app)
    async with TestClient(TestServer(app)) as http:
        client = SecretManager(str(http.make_url("")).rstrip("/"))
        assert (await http.post(f"{PATH}?secretId=hf")).status == 200
        yield Pretend(http, server, client)
        client.close()


async def test_versions_are_read_by_number_or_the_newest(pretend: Pretend) -> None:
    await pretend.add(b"one")
    await pretend.add(b"two")
    assert await pretend.client.access(HF) == b"two"
    assert await pretend.client.access(ManagedSecret("ml-project", "hf", "1")) == b"one"


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (HF, "does not exist"),
        (ManagedSecret("ml-project", "none"), "does not exist"),
        (ManagedSecret("ml-project", "hf", "7"), "does not exist"),
    ],
)
async def test_what_is_not_there_is_refused(
    pretend: Pretend, secret: ManagedSecret, words: str
) -> None:
    with pytest.raises(SecretRefused, match=words):
        await pretend.client.access(secret)


async def test_a_disabled_version_is_refused(pretend: Pretend) -> None:
    await pretend.add(b"one")
    assert (await pretend.http.post(f"{PATH}/hf/versions/1:disable")).status == 200
    with pytest.raises(SecretRefused, match="enabled"):
        await pretend.client.access(HF)


async def test_a_forbidden_project_names_the_role(pretend: Pretend) -> None:
    pretend.server.faults["ml-project"] = 403
    with pytest.raises(SecretRefused, match="secretAccessor"):
        await pretend.client.access(HF)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_one_that_fails_is_asked_again(pretend: Pretend, status: int) -> None:
    pretend.server.faults["ml-project"] = status
    with pytest.raises(SecretsAway, match=str(status)):
        await pretend.client.access(HF)


async def test_one_that_does_not_answer_is_asked_again() -> None:
    client = SecretManager("http://127.0.0.1:1")
    with pytest.raises(SecretsAway, match="does not answer"):
        await client.access(HF)
    client.close()
