"""Which tokens attempts get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from config.settings import WorkerSettings
from core.errors import SecretRefused
from core.job_fields import WorkerSpec
from core.job_tokens import AccessToken, TokenKind, TokenRequest
from scheduler.secrets.job_tokens import JobTokens, kinds_for, no_tokens, prefixes_of
from tests.builders import settings

REQUEST = TokenRequest("acme", "u/1", "job", 2, "lease", (TokenKind.STORE,))
SPEC = WorkerSpec("job")
GOOGLE = TokenKind.GOOGLE


class Source:
    """Remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Sequence[str]]] = []
        self.read: list[str] = []

    async def for_prefixes(
        self, bucket: str, prefixes: Sequence[str], read: Sequence[str] = ()
    ) -> AccessToken:
        self.asked.append((bucket, prefixes))
        self.read += read
        return AccessToken("t", 1.0)

    async def for_account(self, account: str) -> AccessToken:
        return AccessToken("g", 1.0, account)


def test_a_bucket_needs_a_token_and_a_directory_does_not() -> None:
    assert kinds_for(SPEC, settings(store_url="gs://b/p")) == (TokenKind.STORE,)
    assert kinds_for(SPEC, settings()) == ()
    without = WorkerSettings(store_tokens=False)
    assert kinds_for(SPEC, settings(store_url="gs://b", workers=without)) == ()


def test_an_attempts_own_directories_alone() -> None:
    """Ids are quoted, so that none leads to another job's; the last slash ends the number. Members
    of a gang share their checkpoints."""
    below = ("logs/acme/u%2F1/job/2/", "artifacts/acme/u%2F1/job/2/", "checkpoints/acme/u%2F1/job/")
    member = replace(REQUEST, job_id="job.3", rank=3)
    assert prefixes_of(member, "gs://b")[1][2] == "checkpoints/acme/u%2F1/job/"
    assert prefixes_of(REQUEST, "gs://b") == ("b", below)
    assert prefixes_of(REQUEST, "gs://b/p/q/") == ("b", tuple(f"p/q/{key}" for key in below))


async def test_what_the_request_names_is_minted() -> None:
    source = Source()
    assert await JobTokens(source, "gs://b", dict).mint(REQUEST) == {
        TokenKind.STORE: AccessToken("t", 1.0)
    }
    assert source.asked == [prefixes_of(REQUEST, "gs://b")]
    assert source.read == ["code/acme/"]


async def test_a_job_that_calls_google_is_its_tenants_account() -> None:
    """As the configuration names it now; a tenant without one is refused."""
    spec, request = WorkerSpec("job", google_token=True), replace(REQUEST, kinds=(GOOGLE,))
    assert kinds_for(spec, settings()) == (GOOGLE,)
    assert kinds_for(spec, settings(store_url="gs://b")) == (TokenKind.STORE, GOOGLE)
    accounts = {"acme": "jobs@acme.iam.gserviceaccount.com"}
    tokens = JobTokens(Source(), "gs://b", lambda: accounts)
    assert (await tokens.mint(request))[GOOGLE].account == accounts["acme"]
    with pytest.raises(SecretRefused, match=r"tenants\.other\.google_account"):
        await tokens.mint(replace(request, tenant_id="other"))


async def test_where_nobody_mints() -> None:
    with pytest.raises(SecretRefused, match="no tokens"):
        await no_tokens(REQUEST)
