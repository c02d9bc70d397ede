"""What every checker of identity tokens does: Google's, and the one for machines of our own and for
virtual time."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Protocol

import pytest

from core.worker_identity import IdentityRefused, IdentityTokens, VmIdentity, WorkerPublicKeys
from sim.cloud.model import VmInfo

PROJECT = "zen-test"
AUDIENCE = WorkerPublicKeys(b"s" * 32, b"x" * 32).audience
VM = VmInfo(
    id=4567890123456789012,
    name="zen-vm-aaaa",
    zone="us-central1-a",
    region="us-central1",
    mig="zen-mig",
    machine_type="a2-highgpu-2g",
    gpus=2,
    spot=True,
    metadata=(),
    labels=(),
    created_at=1_700_000_000.0,
)
WORDS = ["", ".", "..", "a.b.c", "x" * 9000, "é.é.é", "[" * 4000, "bnVsbA.bnVsbA.bnVsbA", "\0"]


class Rig(Protocol):
    """An issuer of a project and a checker that believes it."""

    tokens: IdentityTokens

    async def issue(self, vm: VmInfo, audience: str, *, age_s: float = 0.0) -> str: ...


class IdentityTokensContract:
    """Inherited by the tests of each adapter, which give it a rig."""

    async def test_a_token_says_which_vm_has_asked_for_it(self, rig: Rig) -> None:
        """Project, zone, number and name are the cloud's words."""
        said = await rig.tokens.verify(await rig.issue(VM, AUDIENCE), AUDIENCE)
        assert isinstance(said, VmIdentity)
        assert said == VmIdentity(
            PROJECT, "us-central1-a", str(VM.id), "zen-vm-aaaa", said.issued_at
        )

    async def test_a_token_says_when_it_was_issued(self, rig: Rig) -> None:
        """Of two boots of a VM the later token is known by it."""
        tokens = [await rig.issue(VM, AUDIENCE, age_s=age_s) for age_s in (60.0, 0.0)]
        said = [await rig.tokens.verify(token, AUDIENCE) for token in tokens]
        times = [each.issued_at for each in said if isinstance(each, VmIdentity)]
        assert len(times) == 2
        assert 59 <= times[1] - times[0] <= 62

    async def test_a_token_for_other_keys_proves_nothing(self, rig: Rig) -> None:
        """A token that was taken from a VM is of no use to a thief, who has other keys."""
        other = WorkerPublicKeys(b"s" * 32, b"y" * 32).audience
        said = await rig.tokens.verify(await rig.issue(VM, AUDIENCE), other)
        assert isinstance(said, IdentityRefused)

    @pytest.mark.parametrize("age_s", [3700.0, 86400.0, -86400.0])
    async def test_a_token_is_good_for_an_hour(self, rig: Rig, age_s: float) -> None:
        """Neither an old one nor one from the future counts."""
        token = await rig.issue(VM, AUDIENCE, age_s=age_s)
        assert isinstance(await rig.tokens.verify(token, AUDIENCE), IdentityRefused)

    async def test_clocks_may_differ_a_little(self, rig: Rig) -> None:
        """A cloud whose clock is some seconds ahead issues good tokens."""
        token = await rig.issue(VM, AUDIENCE, age_s=-10.0)
        assert isinstance(await rig.tokens.verify(token, AUDIENCE), VmIdentity)

    async def test_changed_words_are_refused(self, rig: Rig) -> None:
        """Every part of a token is signed."""
        token = await rig.issue(VM, AUDIENCE)
        another = await rig.issue(replace(VM, name="zen-vm-bbbb"), AUDIENCE)
        places = range(0, len(token), max(1, len(token) // 40))
        # The last two characters of a signature may differ in bits that carry nothing.
        changed = [
            token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :] for at in places
        ]
        parts, others = token.split("."), another.split(".")
        changed += [".".join([*parts[:-1], others[-1]]), ".".join([others[0], *parts[1:]])]
        said = [await rig.tokens.verify(each, AUDIENCE) for each in changed if each != token]
        assert said
        assert all(isinstance(each, IdentityRefused) for each in said)

    @pytest.mark.parametrize("words", WORDS, ids=range(len(WORDS)))
    async def test_what_is_no_token_is_refused(self, rig: Rig, words: str) -> None:
        """Whatever is sent, the answer is a refusal, not an error."""
        assert isinstance(await rig.tokens.verify(words, AUDIENCE), IdentityRefused)

    async def test_a_token_without_a_signature_is_refused(self, rig: Rig) -> None:
        """`alg: none` and keys of the sender's own choice prove nothing."""
        _, payload, *_ = [*(await rig.issue(VM, AUDIENCE)).split("."), ""]
        headers: list[object] = [
            {"alg": "none"},
            {"alg": "HS256", "kid": "k"},
            {"alg": "RS256"},
            [],
            None,
        ]
        for header in headers:
            head = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
            for signature in ("", "AAAA"):
                said = await rig.tokens.verify(f"{head}.{payload}.{signature}", AUDIENCE)
                assert isinstance(said, IdentityRefused)

    async def test_refusals_do_not_repeat_the_token(self, rig: Rig) -> None:
        """The reason goes to logs: a token, even a bad one, does not."""
        token = await rig.issue(VM, AUDIENCE)
        said = await rig.tokens.verify(token, "zen:other")
        assert isinstance(said, IdentityRefused)
        assert not any(part in said.reason for part in token.split(".") if part)
