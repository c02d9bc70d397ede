"""Identity tokens in virtual time."""

from __future__ import annotations

import random

import pytest

from sim.cloud.model import VmInfo
from sim.virtual.identity_tokens import VirtualIdentityTokens
from tests.core.identity_tokens_contract import AUDIENCE, PROJECT, VM, IdentityTokensContract


class VirtualRig:
    """Issuer and checker are one."""

    def __init__(self) -> None:
        self._time = 1e6
        self.tokens = VirtualIdentityTokens(PROJECT, lambda: self._time, random.Random(1))

    async def issue(
        self, vm: VmInfo, audience: str, *, age_s: float = 0.0, project: str = PROJECT
    ) -> str:
        self._time -= age_s
        self.tokens._project = project
        token = self.tokens.issue(vm, audience)
        self.tokens._project = PROJECT
        self._time += age_s
        return token


@pytest.fixture
def rig() -> VirtualRig:
    return VirtualRig()


class TestVirtualIdentityTokens(IdentityTokensContract):
    """The contract, without waiting."""


async def test_a_seed_gives_the_same_tokens(rig: VirtualRig) -> None:
    """A run can be repeated."""
    assert await rig.issue(VM, AUDIENCE) == await VirtualRig().issue(VM, AUDIENCE)
