"""Down-scoped tokens, by Google's own library, against services that enforce the boundary."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from core.errors import Forbidden, SecretRefused, SecretsAway
from core.job_tokens import AccessToken
from sim.cloud.access_tokens import TokenGrant
from stores.artifacts import ArtifactPath
from stores.base import LogPath, StoreUnavailable
from stores.gcs import GcsStore, endpoint
from stores.google_tokens import GoogleTokenMint, condition
from tests.sim.cloud.google import Google, google

MINE, THEIRS = LogPath("a", "u", "it's", 1), LogPath("b", "u", "it's", 1)
PREFIXES = (f"zen/{MINE.key}/", f"zen/{ArtifactPath('a', 'u', 'it%s', 1).key}/")


@pytest.fixture
async def cloud(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Google]:
    async with google(monkeypatch) as served:
        yield served


@pytest.fixture
async def store() -> AsyncIterator[GcsStore]:
    opened = GcsStore("bucket", "zen", retry_first_s=0.001)
    yield opened
    await opened.close()


async def minted(cloud: Google) -> AccessToken:
    source = GoogleTokenMint(cloud.url)
    try:
        return await source.for_prefixes("bucket", PREFIXES)
    finally:
        source.close()


async def write(store: GcsStore, path: LogPath) -> None:
    async with store.writer(path) as writer:
        await writer.write(b"hello")


async def test_it_opens_its_prefixes_and_nothing_else(cloud: Google, store: GcsStore) -> None:
    token = await minted(cloud)
    mine = store.scoped(lambda: token.value)
    await write(mine, MINE)
    assert (await mine.read(MINE, 0, 100)).data == b"hello"
    for attempt in (write(mine, THEIRS), mine.size(THEIRS), mine.get("secrets", 0, 9)):
        with pytest.raises(Forbidden, match="403"):
            await attempt
    other = GcsStore("elsewhere", "zen").scoped(lambda: token.value)
    with pytest.raises(Forbidden, match="403"):
        await write(other, MINE)
    assert sorted(name for _, name in cloud.storage.objects) == [f"zen/{MINE.key}/{0:015d}"]


async def test_it_ends_and_a_new_one_goes_on(cloud: Google, store: GcsStore) -> None:
    """A token that has ended is waited for: the bucket is away, not closed."""
    held = [await minted(cloud)]
    mine = store.scoped(lambda: held[0].value)
    await mine.put(f"{MINE.key}/a", b"1")
    cloud.clock.pass_s(3601)
    with pytest.raises(StoreUnavailable, match="401"):
        await mine.put(f"{MINE.key}/a", b"2")
    held[0] = await minted(cloud)
    await mine.put(f"{MINE.key}/a", b"3")
    assert cloud.storage.objects["bucket", f"zen/{MINE.key}/a"] == b"3"


async def test_large_files_go_in_pieces(
    cloud: Google, store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stores.gcs_upload.PIECE", 256 * 1024)
    token, data = await minted(cloud), bytes(600 * 1024)
    await store.scoped(lambda: token.value).put(f"{MINE.key}/large", data)
    assert cloud.storage.objects["bucket", f"zen/{MINE.key}/large"] == data


async def test_a_vms_own_account_opens_no_bucket(cloud: Google, store: GcsStore) -> None:
    own = cloud.tokens.issue(TokenGrant("vm@zen-test", cloud.clock() + 60))
    with pytest.raises(Forbidden, match="vm@zen-test has no access"):
        await write(store.scoped(lambda: own), MINE)


async def test_the_schedulers_account_reads_all(cloud: Google, store: GcsStore) -> None:
    """As google-auth finds it: no token of ours."""
    cloud.storage.objects["bucket", f"zen/{THEIRS.key}/{0:015d}"] = b"theirs"
    assert (await store.read(THEIRS, 0, 100)).data == b"theirs"


async def test_a_boundary_cannot_be_widened(cloud: Google) -> None:
    token = await minted(cloud)
    source = GoogleTokenMint(cloud.url)
    monkey = (token.value, token.ends_at)
    source._own = lambda: monkey  # type: ignore[method-assign]
    with pytest.raises(SecretsAway, match="invalid_grant"):
        await source.for_prefixes("bucket", ("",))
    source.close()


async def test_a_tenants_account_by_impersonation(cloud: Google) -> None:
    source = GoogleTokenMint(cloud.url)
    token = await source.for_account("jobs@acme.iam.gserviceaccount.com")
    grant = cloud.tokens.grant(token.value)
    assert grant is not None
    assert grant.account == token.account == "jobs@acme.iam.gserviceaccount.com"
    cloud.tokens.scheduler = "somebody else"
    with pytest.raises(SecretRefused, match="PERMISSION_DENIED"):
        await source.for_account("jobs@acme.iam.gserviceaccount.com")
    source.close()


async def test_services_that_do_not_answer_are_asked_again(
    cloud: Google,
) -> None:
    """And errors hold no token."""
    source = GoogleTokenMint("http://127.0.0.1:9")
    with pytest.raises(SecretsAway, match="TransportError"):
        await source.for_prefixes("bucket", PREFIXES)
    source.close()


def test_names_are_quoted_in_the_condition() -> None:
    text = condition("b", ["o'neill\\"])
    assert r"startsWith('projects/_/buckets/b/objects/o\'neill\\')" in text


def test_where_the_bucket_is() -> None:
    assert endpoint({}) == ("https://storage.googleapis.com", True)
    assert endpoint({"STORAGE_EMULATOR_HOST": "h:1"}) == ("http://h:1", False)
    override = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": "http://h:1/storage/v1/"}
    assert endpoint(override) == ("http://h:1", True)
