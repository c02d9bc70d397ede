"""Access tokens that a job is given for a while: whose they are, and when they are renewed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


def name_of_gang(job_id: str, rank: int) -> str:
    """The job that people know: a member's own id has its rank at the end."""
    return job_id.removesuffix(f".{rank}") if rank else job_id


class TokenKind(StrEnum):
    """What a token is for."""

    STORE = "store"
    """The agent stores logs, outputs and checkpoints of one attempt with it, and nothing else."""
    GOOGLE = "google"
    """The job itself calls Google with it, as its tenant's account."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A bearer token of Google's. Never in a repr: it stands in sealed messages alone."""

    value: str = field(repr=False)
    ends_at: float
    """Seconds since 1970."""
    account: str = ""
    """The service account that the job is with it."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Whose tokens are asked for: one attempt of a job."""

    tenant_id: str
    user_id: str
    job_id: str
    attempt: int
    lease_id: str
    kinds: tuple[TokenKind, ...]
    rank: int = 0
    """Among the members of its gang."""

    @property
    def job_name(self) -> str:
        """The job that people know."""
        return name_of_gang(self.job_id, self.rank)


Tokens = Mapping[TokenKind, AccessToken]
MintTokens = Callable[[TokenRequest], Awaitable[Tokens]]
"""SecretRefused: not now and not later; SecretsAway: ask again."""


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """The life of the tokens that an attempt has."""

    since: float
    until: float

    @property
    def renew_at(self) -> float:
        """At half of it: tokens last from minutes to an hour, and the other half is for retries and
        for a change of the leader."""
        return (self.since + self.until) / 2


def span_of(tokens: Tokens, now: float) -> TokenSpan:
    """Until the first of them ends."""
    return TokenSpan(now, min(token.ends_at for token in tokens.values()))


def due(
    leases: Sequence[str],
    spans: Mapping[str, TokenSpan],
    asked: Mapping[str, float],
    now: float,
    again_s: float,
) -> list[str]:
    """Leases whose tokens are to be renewed now, the first to end first. Of one that nobody knows
    of, a former leader minted the tokens. One that was asked for lately has its time."""
    unknown = TokenSpan(0.0, 0.0)
    found = [
        (spans.get(lease, unknown).until, lease)
        for lease in leases
        if spans.get(lease, unknown).renew_at <= now
        and now - asked.get(lease, now - again_s) >= again_s
    ]
    return [lease for _, lease in sorted(found)]


def account_fault(tenant_id: str) -> str:
    """Why jobs of the tenant cannot call Google."""
    return (
        f"tenant {tenant_id} has no Google account for its jobs: an operator can name one with "
        f"tenants.{tenant_id}.google_account in the configuration"
    )
