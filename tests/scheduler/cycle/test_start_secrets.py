"""Secrets of starts: asked for beside the relay, sent once, stored nowhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from core.changes import DeadLetter
from core.errors import SecretRefused, SecretsAway, StoreDown
from core.job_fields import WorkerSpec
from core.job_tokens import AccessToken, TokenKind, TokenRequest, Tokens
from core.messages import InMessage, OutboxRow, OutMessage, RenewTokens, StartJob, StopJob
from core.names import Names
from messaging.codec import SECRETS, decode_control, encode_control
from messaging.token_parts import wanting
from scheduler.cycle import start_secrets
from scheduler.cycle.outbox_relay import Relay
from scheduler.cycle.start_secrets import Resolve, SealedParts, StartSecrets, no_secrets
from tests.builders import NOW, live
from tests.scheduler.cycle.test_outbox_relay import HandClock, Shelf, Wire, leader
from tests.workers import as_sent

NAMES = Names()
REFERENCES = {"TOKEN": "zen://token"}


def start(number: int, vm: str = "vm-1", secrets: Mapping[str, str] = REFERENCES) -> OutboxRow:
    spec = WorkerSpec("job-1", tenant_id="ml", secrets=secrets)
    order = StartJob(vm, "boot", spec, "1xl4", "us-central1", 1, f"lease-{number}", (0,))
    return OutboxRow(number, encode_control(order, NAMES))


def stop(number: int, vm: str = "vm-1") -> OutboxRow:
    order = StopJob(vm, "boot", "job-1", "0", 1, "lease-1", 5.0, "enough")
    return OutboxRow(number, encode_control(order, NAMES))


class Answers:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.open = asyncio.Event()
        self.failures: list[Exception] = []

    async def resolve(self, tenant_id: str, references: Mapping[str, str]) -> Mapping[str, str]:
        self.asked.append((tenant_id, references))
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)
        return dict.fromkeys(references, f"hush of {tenant_id}")


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def answers() -> Answers:
    return Answers()


async def relay_over(*rows: OutboxRow, resolve: Resolve) -> tuple[Relay, Shelf, Wire]:
    clock = HandClock()
    shelf, wire = Shelf(*rows, clock=clock), Wire()
    relay = Relay(shelf, wire, await leader(shelf), clock, live(), as_sent, SealedParts(resolve))  # type: ignore[arg-type]
    return relay, shelf, wire


async def test_other_workers_do_not_wait_for_secrets(answers: Answers) -> None:
    """What follows for the same worker does: a stop must not overtake its start."""
    rows = (start(1), start(2, "vm-2", {}), stop(3), stop(4, "vm-2"))
    relay, shelf, wire = await relay_over(*rows, resolve=answers.resolve)
    assert await relay.send_batch() == 2
    assert [row.outbox_id for row in shelf.rows] == [1, 3]
    assert relay.withheld(60) == {"lease-1"}
    answers.open.set()
    await settled()
    assert await relay.send_batch() == 2
    assert shelf.rows == []
    assert answers.asked == [("ml", REFERENCES)]
    sent = json.loads(wire.sent[-2])
    assert sent["secret_values"] == {"TOKEN": "hush of ml"}


async def test_the_worker_gets_the_values_and_nobody_is_told_of_them(answers: Answers) -> None:
    """They are in no repr, and the outbox has the reference alone."""
    answers.open.set()
    row = start(1)
    starts = StartSecrets(SealedParts(answers.resolve), HandClock(), lambda: None)
    assert starts.sort([row]).held == [row]
    await settled()
    assert starts.sort([row]).ready == [row]
    message = starts.message(row)
    assert SECRETS not in message.attributes
    heard = InMessage("a", "1", NOW, message.body, message.attributes)
    order = decode_control(heard)
    assert isinstance(order, StartJob)
    assert order.secret_values == {"TOKEN": "hush of ml"}
    assert "hush" not in repr(order) + repr(starts._wanted)
    assert b"hush" not in row.message.body


async def test_a_refused_secret_ends_the_start_with_its_words(answers: Answers) -> None:
    answers.failures = [SecretRefused("secrets.TOKEN: tenant ml has no secret zen://token")]
    answers.open.set()
    relay, shelf, wire = await relay_over(start(1), resolve=answers.resolve)
    await relay.send_batch()
    await settled()
    await relay.send_batch()
    assert (shelf.rows, wire.sent) == ([], [])
    assert "no secret zen://token" in relay.refused_starts(60)["lease-1"]


async def test_a_service_that_is_away_is_asked_again_for_a_while(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the start is refused, and says who did not answer."""
    monkeypatch.setattr(start_secrets, "AGAIN_FIRST_S", 0.0)
    answers.failures = [SecretsAway("Secret Manager answers 503")] * 3
    answers.open.set()
    row, clock = start(1), HandClock()
    starts = StartSecrets(SealedParts(answers.resolve), clock, lambda: None)
    starts.sort([row])
    await settled()
    assert starts.sort([row]).ready == [row]
    assert len(answers.asked) == 4
    answers.failures = [SecretsAway("Secret Manager answers 503")]
    starts.forget([row])
    starts.sort([row])
    monkeypatch.setattr(start_secrets, "WAIT_S", 0.0)
    await settled()
    ((_, words),) = starts.sort([row]).refused
    assert words.startswith("Secret Manager answers 503")


async def test_unexpected_errors_are_told_by_their_kind_alone(answers: Answers) -> None:
    answers.failures = [RuntimeError("hush")]
    answers.open.set()
    starts = StartSecrets(SealedParts(answers.resolve), HandClock(), lambda: None)
    starts.sort([start(1)])
    await settled()
    ((_, words),) = starts.sort([start(1)]).refused
    assert words == "its secrets could not be read (RuntimeError)"


async def test_a_dead_letter_of_a_start_has_references_alone(answers: Answers) -> None:
    """Though the bus refused the message with its values."""
    answers.open.set()
    relay, shelf, wire = await relay_over(start(1), start(2, "vm-2", {}), resolve=answers.resolve)
    await relay.send_batch()
    await settled()
    for row in list(shelf.rows):
        wire.refuse.add(relay._message(row).body)
    shelf.rows.append(start(3, "vm-3", {}))
    await relay.send_batch()
    letters = [change for change in shelf.told if isinstance(change, DeadLetter)]
    assert [letter.message_id for letter in letters] == ["outbox-1"]
    assert b"zen://token" in letters[0].body
    assert b"hush" not in letters[0].body


async def test_a_deployment_without_secrets_says_so() -> None:
    with pytest.raises(SecretRefused, match="TOKEN"):
        await no_secrets("ml", REFERENCES)


async def test_values_are_forgotten_when_another_replica_leads(answers: Answers) -> None:
    starts = StartSecrets(SealedParts(answers.resolve), HandClock(), lambda: None)
    starts.sort([start(1)])
    assert starts.held == [1]
    starts.close()
    assert (starts.held, starts._wanted) == ([], {})


def test_messages_of_others_are_left_as_they_are() -> None:
    row = OutboxRow(1, OutMessage("control", b"{}"))
    starts = StartSecrets(SealedParts(), HandClock(), lambda: None)
    assert starts.message(row) is row.message


def renewal(number: int, vm: str = "vm-1") -> OutboxRow:
    order = RenewTokens(vm, "boot", "job-1", "0", 1, "lease-1", "ml")
    return OutboxRow(number, wanting(encode_control(order, NAMES), [TokenKind.STORE]))


async def test_a_stop_does_not_wait_for_new_tokens() -> None:
    """And tokens that cannot be had fail no job."""

    async def mint(request: TokenRequest) -> Tokens:
        raise SecretRefused(f"no token for {request.job_id}")

    rows = (renewal(1), stop(2))
    clock = HandClock()
    shelf, wire = Shelf(*rows, clock=clock), Wire()
    led = await leader(shelf)
    relay = Relay(shelf, wire, led, clock, live(), as_sent, SealedParts(mint=mint))  # type: ignore[arg-type]
    assert await relay.send_batch() == 1
    assert [row.outbox_id for row in shelf.rows] == [1]
    await settled()
    await relay.send_batch()
    assert (shelf.rows, dict(relay.refused_starts(60))) == ([], {})


async def test_a_start_has_its_tokens_beside_its_secrets(answers: Answers) -> None:
    answers.open.set()

    async def mint(request: TokenRequest) -> Tokens:
        return {kind: AccessToken(f"ya29.{request.tenant_id}", 9.0) for kind in request.kinds}

    row = start(1)
    row = OutboxRow(1, wanting(row.message, [TokenKind.STORE]))
    starts = StartSecrets(SealedParts(answers.resolve, mint), HandClock(), lambda: None)
    starts.sort([row])
    await settled()
    message = starts.message(row)
    order = decode_control(InMessage("a", "1", NOW, message.body, message.attributes))
    assert isinstance(order, StartJob)
    assert order.tokens == {TokenKind.STORE: AccessToken("ya29.ml", 9.0)}
    assert order.secret_values == {"TOKEN": "hush of ml"}
    assert "ya29" not in repr(order) + repr(starts._wanted)


async def test_an_outage_of_tokens_refuses_no_start(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it lasts; a refusal does."""
    monkeypatch.setattr(start_secrets, "AGAIN_FIRST_S", 0.0)
    clock, failures = HandClock(), [SecretsAway("STS answers 503"), StoreDown("away")]

    async def mint(request: TokenRequest) -> Tokens:
        clock.passed_s += 2 * start_secrets.WAIT_S
        if failures:
            raise failures.pop(0)
        return {kind: AccessToken("ya29", 9.0) for kind in request.kinds}

    answers.open.set()
    row = OutboxRow(1, wanting(start(1).message, [TokenKind.STORE]))
    starts = StartSecrets(SealedParts(answers.resolve, mint), clock, lambda: None)
    starts.sort([row])
    await settled()
    found = starts.sort([row])
    assert (found.ready, found.refused, failures) == ([row], [], [])
    failures.append(SecretRefused("IAM answers PERMISSION_DENIED"))
    starts.forget([row])
    starts.sort([row])
    await settled()
    assert starts.sort([row]).refused == [(row, "IAM answers PERMISSION_DENIED")]


async def test_a_start_does_not_wait_for_the_turns_of_renewals(answers: Answers) -> None:
    never = asyncio.Event()

    async def mint(request: TokenRequest) -> Tokens:
        await never.wait()
        return {}

    answers.open.set()
    renewals = [renewal(number, f"vm-{number}") for number in range(2, 3 + start_secrets.AT_ONCE)]
    starts = StartSecrets(SealedParts(answers.resolve, mint), HandClock(), lambda: None)
    starts.sort([*renewals, last := start(100)])
    await settled()
    assert starts.sort([]).ready == [last]
    starts.close()


async def test_what_was_held_does_not_overtake_rows_that_are_not_read_yet(answers: Answers) -> None:
    """A full batch ends before it: others for the same worker may stand between."""
    answers.open.set()
    held, early = start(9), stop(5, "vm-2")
    starts = StartSecrets(SealedParts(answers.resolve), HandClock(), lambda: None)
    starts.sort([held])
    await settled()
    assert starts.sort([early], full=True).ready == [early]
    assert starts.sort([]).ready == [held]
