"""The tokens of machines of our own, by the contract of all identity tokens."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from core.worker_identity import VmIdentity
from messaging.proofs.enrolment import EnrolmentTokens, instance_secret, make_token
from sim.cloud.model import VmInfo
from tests.builders import HandClock
from tests.core.identity_tokens_contract import PROJECT, IdentityTokensContract

SECRET = b"a deployment's secret, 32 bytes."


class EnrolmentRig:
    """The machine's side and the scheduler's."""

    def __init__(self) -> None:
        self._clock = HandClock()
        self.tokens = EnrolmentTokens([SECRET], self._clock)

    async def issue(self, vm: VmInfo, audience: str, *, age_s: float = 0.0) -> str:
        now: datetime = self._clock.now().astimezone(UTC)
        issued_at = int(now.timestamp() - age_s)
        me = VmIdentity(PROJECT, vm.zone, str(vm.id), vm.name, issued_at)
        return make_token(instance_secret(SECRET, vm.name, str(vm.id)), me, audience)


@pytest.fixture
def rig() -> EnrolmentRig:
    return EnrolmentRig()


class TestEnrolmentTokens(IdentityTokensContract):
    """The contract, without a cloud."""
