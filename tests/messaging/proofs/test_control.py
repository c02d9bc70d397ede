"""Proofs on what the scheduler sends: for one VM, one boot, once, and sealed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.job_fields import WorkerSpec
from core.messages import Canary, Control, DrainVm, InMessage, OutboxRow, StartJob, StopJob
from core.names import Names
from messaging.codec import decode_control, encode_canary, encode_control
from messaging.errors import ContentRefused
from messaging.proofs.control import (
    SEAL_TO,
    ControlVerifier,
    Numbers,
    SchedulerSigner,
    open_start,
)
from messaging.proofs.heartbeats import BadProof, ProofFault
from messaging.proofs.keys import SchedulerKey, WorkerKeys
from messaging.proofs.sealing import NotForUs
from messaging.proofs.texts import to_text
from tests.workers import SCHEDULER, SIGNER, STRANGER, WORKER, arrived

NAMES = Names()
OTHER = SchedulerKey.from_seeds(b"7" * 32, b"8" * 32)


def start() -> StartJob:
    spec = WorkerSpec("j", command=("true",), environment={"TOKEN": "hush"})
    return StartJob("vm-1", "nonce", spec, "1xl4", "us-central1", 1, "lease", (0,))


def sent(control: Control, number: int = 1, by: SchedulerSigner = SIGNER) -> InMessage:
    message = encode_control(control, NAMES)
    recipient = to_text(WORKER.public.sealing)
    seal_to = {SEAL_TO: recipient} if isinstance(control, StartJob) else {}
    row = OutboxRow(number, replace(message, attributes={**message.attributes, **seal_to}))
    return arrived(by.control(row, b"e" * 32))


def verifier(keys: WorkerKeys = WORKER, vm: str = "vm-1", boot: str = "nonce") -> ControlVerifier:
    return ControlVerifier(keys, (SCHEDULER.public,), vm, boot)


def fault_of(message: InMessage) -> ProofFault:
    with pytest.raises(BadProof) as caught:
        verifier().check(message)
    return caught.value.fault


def test_start_is_opened_by_its_vm_alone() -> None:
    """Its body holds nothing that a reader of the topic could use."""
    message = sent(start())
    assert b"hush" not in message.body
    assert b"TOKEN" not in message.body
    assert SEAL_TO not in message.attributes
    opened = verifier().check(message)
    assert opened is not None
    assert decode_control(opened) == start()
    with pytest.raises(NotForUs):
        open_start(message.body, message.attributes, STRANGER)


def test_message_of_another_vm_goes_back() -> None:
    """NotForUs is told from a bad proof: the one is its owner's, the other nobody's."""
    with pytest.raises(NotForUs):
        verifier(vm="vm-2").check(sent(start()))


def test_number_is_taken_once() -> None:
    """The same message under another message id changes nothing; a late one is taken."""
    at = verifier()
    assert at.check(sent(start(), 5)) is not None
    assert at.check(sent(start(), 5)) is None
    assert at.check(sent(DrainVm("vm-1", "nonce", "why"), 4)) is not None


@pytest.mark.parametrize("name", ["vm_name", "kind", "boot_nonce", "number", "sealed"])
def test_attributes_are_signed(name: str) -> None:
    """There is no signature for a changed one."""
    message = sent(start())
    changed = replace(message, attributes={**message.attributes, name: "2"})
    with pytest.raises((BadProof, NotForUs)):
        verifier().check(changed)


def test_unsigned_and_foreign_orders_are_refused() -> None:
    """A start and a stop that somebody else wrote."""
    stop = StopJob("vm-1", "", "j", "0", 1, "lease", 0.0, "forged")
    assert fault_of(arrived(encode_control(stop, NAMES))) is ProofFault.MISSING
    forged = sent(start(), by=SchedulerSigner((OTHER,)))
    assert fault_of(forged) is ProofFault.UNKNOWN_KEY
    proof = forged.attributes["proof"].replace(OTHER.public.key_id, SCHEDULER.public.key_id)
    lying = replace(forged, attributes={**forged.attributes, "proof": proof})
    assert fault_of(lying) is ProofFault.WRONG_SIGNATURE


def test_plain_start_is_refused() -> None:
    """A start is sealed, or it is none."""
    plain = encode_control(start(), NAMES)
    drain = sent(DrainVm("vm-1", "nonce", "why"))
    assert fault_of(replace(drain, body=plain.body)) is ProofFault.WRONG_SIGNATURE
    with pytest.raises(ContentRefused):
        SIGNER.control(OutboxRow(1, plain), b"e" * 32)


def test_order_for_another_boot_is_refused() -> None:
    """One boot's orders are nothing to the next."""
    assert fault_of(sent(DrainVm("vm-1", "older", "x"))) is ProofFault.OTHER_BOOT


def test_rotation() -> None:
    """Signed with both keys, a message is taken by workers of either."""
    both = SchedulerSigner((OTHER, SCHEDULER))
    for key in (OTHER, SCHEDULER):
        at = ControlVerifier(WORKER, (key.public,), "vm-1", "nonce")
        assert at.check(sent(start(), by=both)) is not None


def test_numbers_are_bounded() -> None:
    """Late ones are taken while they can be told from repeated ones."""
    numbers = Numbers(kept=3)
    assert [numbers.take(n) for n in (10, 12, 11)] == [True, True, True]
    assert not numbers.take(11)
    assert not numbers.take(9)
    assert numbers.take(20)
    assert not numbers.take(10)


def test_canary_is_ours_alone() -> None:
    """A forged one does not set the clock of the bus."""
    ours = SIGNER.canary(encode_canary(Canary(1, 2), NAMES))
    SIGNER.check_canary(arrived(ours))
    for bad in (
        encode_canary(Canary(1, 2), NAMES),
        SchedulerSigner((OTHER,)).canary(encode_canary(Canary(1, 2), NAMES)),
        replace(encode_canary(Canary(1, 3), NAMES), attributes=ours.attributes),
    ):
        with pytest.raises(BadProof):
            SIGNER.check_canary(arrived(bad))
