"""Proofs on heartbeats: what each key can prove, and what nobody else can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.messages import Heartbeat, HeartbeatStatus, OutMessage
from core.names import Names
from core.worker_identity import WorkerPublicKeys
from messaging.codec import encode_heartbeat
from messaging.proofs.heartbeats import (
    BadProof,
    HeartbeatProver,
    HeartbeatVerifier,
    ProofFault,
    ProofKind,
    check_introduction,
)
from messaging.proofs.keys import SchedulerKey
from messaging.proofs.texts import BadKey
from tests.workers import SCHEDULER, STRANGER, WORKER

BOOT = "nonce"
PROVER = HeartbeatProver(WORKER, SCHEDULER.public, BOOT)
VERIFIER = HeartbeatVerifier.of(WORKER.public, BOOT, (SCHEDULER,))
OTHER = SchedulerKey.from_seeds(b"7" * 32, b"8" * 32)


def message(seq: int = 1) -> OutMessage:
    said = Heartbeat(HeartbeatStatus.RUNNING, "vm-1", "j", attempt=1, lease_id="l", seq=seq)
    return encode_heartbeat(said, Names())


def check(out: OutMessage, verifier: HeartbeatVerifier = VERIFIER) -> ProofKind:
    return verifier.check(out.body, out.attributes["proof"])


def test_worker_proves_its_heartbeats() -> None:
    """By a signature, and by a MAC that the scheduler can check too."""
    assert check(PROVER.signed(message())) is ProofKind.SIGNED
    assert check(PROVER.authenticated(message())) is ProofKind.MAC


@pytest.mark.parametrize("prove", ["signed", "authenticated"])
def test_changed_body_proves_nothing(prove: str) -> None:
    """One byte is enough."""
    out = getattr(PROVER, prove)(message())
    with pytest.raises(BadProof):
        check(replace(out, body=out.body.replace(b"RUNNING", b"RUNNINF")))


@pytest.mark.parametrize("prove", ["signed", "authenticated"])
def test_other_worker_proves_nothing(prove: str) -> None:
    """Its own keys are not the ones that are known."""
    out = getattr(HeartbeatProver(STRANGER, SCHEDULER.public, BOOT), prove)(message())
    with pytest.raises(BadProof):
        check(out)


def test_mac_belongs_to_one_boot_and_one_scheduler() -> None:
    """The same keys under another boot nonce, or with another scheduler, agree on another key."""
    out = HeartbeatProver(WORKER, SCHEDULER.public, "other").authenticated(message())
    with pytest.raises(BadProof) as caught:
        check(out)
    assert caught.value.fault is ProofFault.WRONG_MAC
    out = HeartbeatProver(WORKER, OTHER.public, BOOT).authenticated(message())
    with pytest.raises(BadProof) as caught:
        check(out)
    assert caught.value.fault is ProofFault.UNKNOWN_KEY


@pytest.mark.parametrize(
    "proof", ["", "s1.", "s1.AAAA", "m1.", "m1.x.y", "c1.a.b", "s1." + "A" * 86, "m1..", "é.é"]
)
def test_malformed_proof_is_refused(proof: str) -> None:
    """No error but BadProof, so that no message stops a cycle."""
    with pytest.raises(BadProof):
        VERIFIER.check(message().body, proof)


def test_scheduler_with_two_keys_checks_both() -> None:
    """While keys are rotated, workers of both are heard."""
    both = HeartbeatVerifier.of(WORKER.public, BOOT, (OTHER, SCHEDULER))
    for key in (SCHEDULER, OTHER):
        out = HeartbeatProver(WORKER, key.public, BOOT).authenticated(message())
        assert check(out, both) is ProofKind.MAC


def test_introduction_is_signed_with_the_keys_that_it_brings() -> None:
    """Not with others, and never by a MAC."""
    out = PROVER.signed(message())
    check_introduction(WORKER.public, out.body, out.attributes["proof"])
    with pytest.raises(BadProof):
        check_introduction(STRANGER.public, out.body, out.attributes["proof"])
    mac = PROVER.authenticated(message()).attributes["proof"]
    with pytest.raises(BadProof):
        check_introduction(WORKER.public, out.body, mac)


def test_keys_of_low_order_are_refused() -> None:
    """A public key of zeros would make the agreed key known to everybody."""
    weak = WorkerPublicKeys(WORKER.public.signing, b"\0" * 32)
    with pytest.raises(BadKey):
        HeartbeatVerifier.of(weak, BOOT, (SCHEDULER,))
