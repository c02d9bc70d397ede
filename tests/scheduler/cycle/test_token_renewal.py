"""Tokens of running attempts are renewed through the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from config.live import LiveSettings
from core.changes import Change, Send
from core.errors import SecretRefused, SecretsAway, StoreDown
from core.job import E
from core.job_tokens import AccessToken, TokenKind, TokenRequest, Tokens
from core.messages import InMessage, OutboxRow, OutMessage, RenewTokens
from messaging.codec import decode_control
from messaging.proofs.control import SEAL_TO, ControlVerifier
from messaging.proofs.heartbeats import BadProof
from messaging.token_parts import TOKENS, wanted_tokens, with_tokens
from scheduler.cycle.token_renewal import AGAIN_S, AT_ONCE, LOOK_S, TokenRenewal
from tests.builders import NOW, HandClock, job, live, snapshot, vm
from tests.workers import PROVEN, SCHEDULER, SIGNER, STRANGER, WORKER

RUNNING = job(1, E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED, tenant_id="acme")
SNAPSHOT = snapshot((RUNNING,), (vm("vm-1", worker_keys=PROVEN, leases=("lease-1",)),))
LIFE_S = 600.0


class Outbox:
    """Takes what is committed."""

    def __init__(self) -> None:
        self.messages: list[OutMessage] = []
        self.down = False

    async def commit(self, batches: Sequence[Sequence[Change]], term: int) -> None:
        if self.down:
            raise StoreDown("away")
        for batch in batches:
            self.messages += [change.message for change in batch if isinstance(change, Send)]


class Term:
    def term(self) -> int:
        return 1


class Leader:
    """A renewal over an outbox, and a mint that may be away."""

    def __init__(self, settings: LiveSettings | None = None) -> None:
        self.clock, self.outbox = HandClock(), Outbox()
        self.failure: Exception | None = None
        self.renewal = TokenRenewal(
            self._mint,
            self.outbox,  # type: ignore[arg-type]  # all that it uses
            Term(),  # type: ignore[arg-type]
            settings or live(store_url="gs://bucket"),
            self.clock,
        )

    async def _mint(self, request: TokenRequest) -> Tokens:
        if self.failure is not None:
            raise self.failure
        ends_at = self.clock.now().timestamp() + LIFE_S
        return {kind: AccessToken("ya29.hush", ends_at) for kind in request.kinds}

    async def look(self, later_s: float = 0.0) -> list[OutMessage]:
        """What a look so much later sends."""
        self.clock.passed_s += later_s
        before = len(self.outbox.messages)
        self.renewal.seen(SNAPSHOT)
        await self.renewal.send()
        return self.outbox.messages[before:]


async def test_a_new_leader_renews_what_runs_and_then_at_half_time() -> None:
    leader = Leader()
    (message,) = await leader.look()
    assert message.attributes[TOKENS] == "store"
    assert await leader.look(LOOK_S) == []
    request = wanted_tokens(message)
    assert request == TokenRequest("acme", "0", "job-1", 1, "lease-1", (TokenKind.STORE,))
    await leader.renewal.mint(request)
    assert await leader.look(LIFE_S / 2 - 1) == []
    assert len(await leader.look(LOOK_S)) == 1


async def test_a_renewal_is_asked_for_again_when_it_was_refused_not_while_it_is_unsent() -> None:
    leader = Leader()
    (message,) = await leader.look()
    request = wanted_tokens(message)
    leader.failure = SecretsAway("STS answers 503")
    with pytest.raises(SecretsAway):
        await leader.renewal.mint(request)
    assert await leader.look(10 * AGAIN_S) == []
    leader.failure = SecretRefused("no")
    with pytest.raises(SecretRefused):
        await leader.renewal.mint(request)
    assert len(await leader.look(LOOK_S)) == 1


async def test_a_renewal_that_could_not_be_written_is_asked_for_again() -> None:
    leader = Leader()
    leader.outbox.down = True
    with pytest.raises(StoreDown):
        await leader.look()
    leader.outbox.down = False
    assert len(await leader.look(AGAIN_S)) == 1


async def test_what_was_seen_is_sent_at_once() -> None:
    leader = Leader()
    running = asyncio.create_task(leader.renewal.run())
    await asyncio.sleep(0)
    leader.renewal.seen(SNAPSHOT)
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    assert len(leader.outbox.messages) == 1


def test_ten_thousand_attempts_are_renewed_within_five_minutes() -> None:
    """Though cycles that show a snapshot may be twice as rare as looks."""
    assert 10_000 / AT_ONCE * 2 * LOOK_S <= 300


async def test_nothing_is_sent_where_the_store_is_a_directory() -> None:
    assert await Leader(live()).look() == []


async def test_its_vm_alone_reads_it() -> None:
    """It is sealed and signed, as a start is; the outbox has no token."""
    leader = Leader()
    (message,) = await leader.look()
    assert b"ya29" not in message.body
    filled = with_tokens(message, await leader.renewal.mint(wanted_tokens(message)))
    sent = SIGNER.control(OutboxRow(7, filled), b"s" * 32)
    assert b"ya29" not in sent.body
    assert not {SEAL_TO, TOKENS} & set(sent.attributes)
    heard = InMessage("a", "1", NOW, sent.body, sent.attributes)
    opened = ControlVerifier(WORKER, (SCHEDULER.public,), "vm-1", "nonce").check(heard)
    assert opened is not None
    order = decode_control(opened)
    assert isinstance(order, RenewTokens)
    assert order.tokens[TokenKind.STORE].value == "ya29.hush"
    assert "hush" not in repr(order)
    try:
        ControlVerifier(STRANGER, (SCHEDULER.public,), "vm-1", "nonce").check(heard)
    except BadProof:
        pass
    else:
        raise AssertionError("another VM has read it")


async def test_a_vm_without_keys_is_sent_nothing() -> None:
    leader = Leader()
    leader.renewal.seen(replace(SNAPSHOT, vms=(vm("vm-1"),)))
    await leader.renewal.send()
    assert leader.outbox.messages == []
