"""Who sent a heartbeat: attacks 13, 14, 15 and 18 of forgers, against the real checks."""

from __future__ import annotations

from dataclasses import replace

from agent.proofs import WorkerProofs
from core.job import E, JobStatus
from core.messages import (
    Canary,
    Control,
    GpuReading,
    Heartbeat,
    HeartbeatStatus,
    OutMessage,
    VmReadings,
)
from core.names import Names
from core.vm import Vm, VmState
from core.worker_identity import IdentityRefused, VmIdentity
from messaging.codec import decode_heartbeat, encode_canary, encode_heartbeat
from messaging.proofs.heartbeats import HeartbeatProver
from scheduler.cycle.heartbeats import ReceivedHeartbeat, apply_heartbeats
from scheduler.cycle.worker_checks import FAILING_AFTER, FAILING_FOR, WorkerChecks
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, RULES, at, job, snapshot, vm
from tests.workers import PROVEN, SCHEDULER, SIGNER, STRANGER, WORKER, arrived, proofs

B, V = HeartbeatStatus, VmState
NAMES = Names()
PROJECT = "project"
ME = VmIdentity(PROJECT, "us-central1-a", "42", "vm-1", 2_000)


def word(status: HeartbeatStatus, seq: int = 7, **words: object) -> Heartbeat:
    said = {"vm_name": "vm-1", "boot_nonce": "nonce", "instance_id": "42"}
    return Heartbeat(status, seq=seq, zone="us-central1-a", **{**said, **words})  # type: ignore[arg-type]


def of_job(status: HeartbeatStatus, **words: object) -> Heartbeat:
    lease = {"job_id": "job-1", "attempt": 1, "lease_id": "lease-1"}
    return word(status, **{**lease, **words})  # type: ignore[arg-type]


def came(message: OutMessage, seconds: float = 10) -> ReceivedHeartbeat:
    heartbeat = decode_heartbeat(arrived(message))
    assert isinstance(heartbeat, Heartbeat)
    proof = message.attributes.get("proof", "")
    return ReceivedHeartbeat(heartbeat, at(seconds), "m-1", message.body, proof)


def by(keys: WorkerProofs, heartbeat: Heartbeat, *, mac: bool = False) -> ReceivedHeartbeat:
    """As that worker would send it."""
    if mac:
        prover = HeartbeatProver(keys.keys, SCHEDULER.public, keys.boot_nonce)
        return came(prover.authenticated(encode_heartbeat(heartbeat, NAMES)))
    (message,) = keys.messages([heartbeat], 0.0)
    return came(message)


def known(**facts: object) -> Vm:
    """A VM whose worker is known, with a job."""
    words = {"worker_keys": PROVEN, "boot_nonce": "nonce", "heard_seq": 5, "last_beat_at": at(5)}
    made = vm("vm-1", leases=("lease-1",), idle_since=None, instance_id="42")
    return replace(made, **{**words, **facts})  # type: ignore[arg-type]


class Desk:
    """Checks at work on one VM and its job."""

    def __init__(self, *heartbeats: ReceivedHeartbeat, on: Vm | None = None) -> None:
        self.counted: list[str] = []
        self.checks = WorkerChecks(SIGNER, PROJECT, self.counted.append)
        self.on = on or known()
        self.hear(*heartbeats)

    def hear(self, *heartbeats: ReceivedHeartbeat) -> None:
        held = (job(1, E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED),) if self.on.leases else ()
        snap = snapshot(held, (self.on,))
        self.plan = PlanBuilder(snap, RULES, self._encode)
        self.checks.begin(snap.now)
        apply_heartbeats(self.plan, heartbeats, self.checks.check)

    def judge(self, verdict: VmIdentity | IdentityRefused) -> None:
        for _, item in self.checks.unjudged.values():
            assert item.heartbeat.introduction is not None
            self.checks.judged(item.heartbeat.introduction, verdict)

    def _encode(self, message: Control) -> OutMessage:
        return OutMessage("control", b"")

    @property
    def status(self) -> JobStatus:
        return self.plan.jobs["job-uid-0001"].status

    @property
    def vm(self) -> Vm:
        return self.plan.vms["uid-vm-1"]


def ours(nonce: str = "nonce") -> WorkerProofs:
    made = proofs(nonce=nonce)
    made.accepted = True
    return made


def test_worker_ends_its_own_job() -> None:
    """A signed COMPLETED counts."""
    desk = Desk(by(ours(), of_job(B.COMPLETED, exit_code=0)))
    assert desk.status is JobStatus.SUCCEEDED
    assert desk.counted == []


def test_forged_end_changes_nothing() -> None:
    """Attack 13: unsigned, signed by another VM's keys, with a stolen proof, or by a MAC."""
    over = of_job(B.COMPLETED, exit_code=0)
    stranger = proofs(keys=STRANGER)
    stranger.accepted = True
    real = by(ours(), of_job(B.RUNNING))
    forged = [
        came(encode_heartbeat(over, NAMES)),
        by(stranger, over),
        replace(came(encode_heartbeat(over, NAMES)), proof=real.proof),
        by(stranger, over, mac=True),
    ]
    desk = Desk(*forged)
    assert desk.status is JobStatus.RUNNING
    assert desk.plan.batches == []
    assert desk.counted == ["no_proof", "wrong_signature", "wrong_signature", "wrong_mac"]
    # Also the worker's own MAC moves no job: it shows life alone.
    assert Desk(by(ours(), over, mac=True)).status is JobStatus.RUNNING


def test_forged_ready_of_another_boot_takes_no_vm() -> None:
    """Attack 14: its job goes on, also if the forger has a good token of an instance of its own."""
    forger = proofs(nonce="forged", keys=STRANGER)
    desk = Desk(by(forger, word(B.READY, boot_nonce="forged")))
    assert desk.plan.batches == []
    for verdict in (
        IdentityRefused("no"),
        replace(ME, instance_name="vm-2"),
        replace(ME, instance_id="43"),
        replace(ME, project="theirs"),
        replace(ME, zone="us-central1-b"),
    ):
        desk.judge(verdict)
        desk.hear(by(forger, word(B.READY, boot_nonce="forged")))
        assert desk.status is JobStatus.RUNNING
        assert desk.vm.worker_keys == PROVEN
        forger.token += "x"
        desk.hear(by(forger, word(B.READY, boot_nonce="forged")))


def test_forged_ready_of_a_requested_vm_gets_no_start() -> None:
    """Attack 15: without the instance's own token the VM does not become READY."""
    young = vm("vm-1", V.REQUESTED, boot_nonce="", ready_at=None, idle_since=None)
    forger = proofs(nonce="forged", keys=STRANGER)
    said = word(B.READY, boot_nonce="forged")
    desk = Desk(by(forger, said), on=young)
    desk.judge(replace(ME, instance_name="vm-2"))
    desk.hear(by(forger, said))
    assert desk.vm.state is V.REQUESTED
    assert desk.counted == ["other_instance"]


def test_ready_of_a_listed_vm() -> None:
    """With its token the worker is known: its keys are stored with the VM."""
    young = vm("vm-1", V.BOOTING, boot_nonce="", ready_at=None, idle_since=None, instance_id="42")
    worker = proofs()
    worker.token = "good"
    desk = Desk(by(worker, word(B.READY)), on=young)
    assert desk.vm == young
    desk.judge(ME)
    desk.hear(by(worker, word(B.READY)))
    assert desk.vm.state is V.READY
    assert desk.vm.worker_keys is not None
    assert desk.vm.worker_keys.public == WORKER.public
    assert desk.vm.instance_id == "42"


def test_no_token_counts_before_compute_has_listed_the_vm() -> None:
    """It names an instance; that this is ours, Compute alone says."""
    young = vm("vm-1", V.REQUESTED, boot_nonce="", ready_at=None, idle_since=None)
    worker = proofs()
    desk = Desk(by(worker, word(B.READY)), on=young)
    desk.judge(ME)
    desk.hear(by(worker, word(B.READY)))
    assert desk.vm.state is V.REQUESTED


def test_ready_of_an_earlier_boot_changes_nothing() -> None:
    """Kept and sent again after the agent was started anew."""
    earlier = proofs(nonce="earlier", keys=STRANGER)
    desk = Desk(by(earlier, word(B.READY, boot_nonce="earlier")))
    desk.judge(replace(ME, issued_at=PROVEN.issued_at))
    desk.hear(by(earlier, word(B.READY, boot_nonce="earlier")))
    assert desk.status is JobStatus.RUNNING
    assert desk.counted == ["older_boot"]
    desk.judge(ME)


def test_forged_gpu_fault_drains_no_vm() -> None:
    """Attack 18: neither forged, nor by a MAC that the worker did not sign."""
    broken = VmReadings((GpuReading(0, fault="fell off the bus"),))
    desk = Desk(came(encode_heartbeat(of_job(B.RUNNING, readings=broken), NAMES)))
    assert desk.vm.health == known().health
    desk = Desk(by(ours(), of_job(B.RUNNING, readings=broken), mac=True))
    assert desk.vm.health == known().health
    desk = Desk(by(ours(), of_job(B.RUNNING, readings=broken)))
    assert desk.vm.health.gpus


def test_repeated_heartbeat_shows_no_life() -> None:
    """A number that was heard before: the VM's silence goes on."""
    old, new = (by(ours(), of_job(B.RUNNING, seq=seq), mac=True) for seq in (5, 6))
    assert Desk(old).plan.heartbeats == {}
    assert Desk(new).plan.heartbeats == {"uid-vm-1": at(10)}
    assert Desk(new, new).plan.heartbeats == {"uid-vm-1": at(10)}


def test_canaries_rise() -> None:
    """A canary counts once, and only with our signature."""
    checks = Desk().checks
    message = arrived(SIGNER.canary(encode_canary(Canary(3, 2), NAMES)))
    assert checks.is_canary(Canary(3, 2), message)
    assert not checks.is_canary(Canary(3, 2), message)
    assert not checks.is_canary(Canary(3, 3), arrived(encode_canary(Canary(3, 3), NAMES)))


def test_vm_that_keeps_failing_raises_an_alert() -> None:
    """After ten of them, and it is cleared when they have ceased."""
    forged = came(encode_heartbeat(of_job(B.COMPLETED, exit_code=0), NAMES))
    desk = Desk(*[forged] * (FAILING_AFTER - 1))
    names = {"vm-1": "uid-vm-1"}
    assert desk.checks.alerts({}, names) == []
    desk.hear(forged)
    (raised,) = desk.checks.alerts({}, names)
    opened = {("worker_unproven", "vm-1"): NOW}
    assert desk.checks.alerts(opened, names) == []
    desk.checks.now = NOW + 2 * FAILING_FOR
    (cleared,) = desk.checks.alerts(opened, names)
    assert type(raised) is not type(cleared)
