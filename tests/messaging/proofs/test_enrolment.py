"""Identity tokens of machines that no cloud vouches for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from core.worker_identity import IdentityRefused, VmIdentity
from messaging.proofs.enrolment import (
    EnrolmentTokens,
    enrolment_secret,
    instance_secret,
    make_token,
)
from tests.builders import NOW
from tests.workers import SCHEDULER, WORKER

SECRET = enrolment_secret(SCHEDULER)
OWN = instance_secret(SECRET, "vm-1", "42")
ME = VmIdentity("p", "z-a", "42", "vm-1", int(NOW.timestamp()))
AUDIENCE = WORKER.public.audience


class StillClock:
    """It stands."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


TOKENS = EnrolmentTokens([SECRET], StillClock())


async def test_token_names_its_instance() -> None:
    """Made with the secret of the instance, for these keys."""
    assert await TOKENS.verify(make_token(OWN, ME, AUDIENCE), AUDIENCE) == ME


@pytest.mark.parametrize("words", [{"instance_name": "vm-2"}, {"instance_id": "43"}])
async def test_secret_of_one_instance_speaks_for_no_other(words: dict[str, str]) -> None:
    """A worker that claims to be another one is refused."""
    token = make_token(OWN, replace(ME, **words), AUDIENCE)  # type: ignore[arg-type]
    assert isinstance(await TOKENS.verify(token, AUDIENCE), IdentityRefused)


async def test_old_and_foreign_tokens_are_refused() -> None:
    """Neither an hour later, nor for other keys."""
    old = make_token(OWN, replace(ME, issued_at=ME.issued_at - 3601), AUDIENCE)
    assert isinstance(await TOKENS.verify(old, AUDIENCE), IdentityRefused)
    token = make_token(OWN, ME, AUDIENCE)
    assert isinstance(await TOKENS.verify(token, "zen:other"), IdentityRefused)


@pytest.mark.parametrize("token", ["", "zen1", "zen1.x.y", "zen1.e30.e30", "a.b", "zen1.é"])
async def test_malformed_tokens_are_refused(token: str) -> None:
    """The answer is a refusal, no error."""
    assert isinstance(await TOKENS.verify(token, AUDIENCE), IdentityRefused)
