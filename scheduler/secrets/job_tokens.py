"""Which tokens an attempt gets, and for what: minted when a message that carries them is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, assert_never
from urllib.parse import urlsplit

from config.settings import Settings
from core.errors import SecretRefused
from core.job_fields import WorkerSpec
from core.job_tokens import AccessToken, TokenKind, TokenRequest, Tokens, account_fault
from stores.artifacts import ArtifactPath
from stores.base import LogPath
from stores.checkpoints import CheckpointPath
from stores.code_trees import code_prefix


class TokenSource(Protocol):
    """Who makes them."""

    async def for_prefixes(
        self, bucket: str, prefixes: Sequence[str], read: Sequence[str] = ()
    ) -> AccessToken:
        """For these prefixes of the bucket alone, and to read these others. SecretRefused;
        SecretsAway: ask again."""
        ...

    async def for_account(self, account: str) -> AccessToken:
        """Of that service account. SecretRefused; SecretsAway: ask again."""
        ...


def kinds_for(spec: WorkerSpec, settings: Settings) -> tuple[TokenKind, ...]:
    """What an attempt of the job is given. A directory needs no token."""
    in_bucket = urlsplit(settings.store_url).scheme == "gs"
    store = (TokenKind.STORE,) if in_bucket and settings.workers.store_tokens else ()
    return (*store, TokenKind.GOOGLE) if spec.google_token else store


def prefixes_of(request: TokenRequest, store_url: str) -> tuple[str, tuple[str, ...]]:
    """The bucket, and where the attempt stores its log and its outputs, which no other attempt of
    the job does, and the checkpoints of the job, which all of them do."""
    parts = urlsplit(store_url)
    root = parts.path.strip("/")
    keys = [
        kind(request.tenant_id, request.user_id, request.job_id, request.attempt).key
        for kind in (LogPath, ArtifactPath)
    ]
    keys.append(CheckpointPath(request.tenant_id, request.user_id, request.job_name).key)
    return parts.netloc, tuple(f"{root}/{key}/" if root else f"{key}/" for key in keys)


def code_of(request: TokenRequest, store_url: str) -> str:
    """Where the code of its tenant's jobs is."""
    root = urlsplit(store_url).path.strip("/")
    key = code_prefix(request.tenant_id)
    return f"{root}/{key}/" if root else f"{key}/"


class JobTokens:
    """Mints what a request names. `accounts`: tenant → the account that its jobs may be."""

    def __init__(
        self, source: TokenSource, store_url: str, accounts: Callable[[], Mapping[str, str]]
    ) -> None:
        self._source, self._store_url, self._accounts = source, store_url, accounts

    async def mint(self, request: TokenRequest) -> Tokens:
        """All of them; SecretRefused, SecretsAway."""
        made: dict[TokenKind, AccessToken] = {}
        for kind in request.kinds:
            match kind:
                case TokenKind.STORE:
                    bucket, prefixes = prefixes_of(request, self._store_url)
                    read = (code_of(request, self._store_url),)
                    made[kind] = await self._source.for_prefixes(bucket, prefixes, read)
                case TokenKind.GOOGLE:
                    account = self._accounts().get(request.tenant_id)
                    if account is None:
                        raise SecretRefused(f"google_token: {account_fault(request.tenant_id)}")
                    made[kind] = await self._source.for_account(account)
                case _:
                    assert_never(kind)
        return made


async def no_tokens(request: TokenRequest) -> Tokens:
    """Where nobody mints them."""
    kinds = ", ".join(request.kinds)
    raise SecretRefused(f"this deployment gives job {request.job_id} no tokens ({kinds})")
