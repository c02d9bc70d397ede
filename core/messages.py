"""What travels on the bus: frozen, versioned. messaging/codec.py turns them into bytes and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum

from core.job_fields import WorkerSpec
from core.job_tokens import Tokens, name_of_gang
from core.slots import gpus_among
from core.worker_identity import WorkerPublicKeys


class HeartbeatStatus(StrEnum):
    """What a worker says. The first five are v1's, the rest came with v2."""

    FOUND_VM = "FOUND_VM"
    """Claimed: I have the start message."""
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    READY = "READY"
    """Idle, no job."""
    DRAINED = "DRAINED"
    """Idle, and will take no more work."""
    PREEMPTED = "PREEMPTED"
    """The cloud takes this VM away."""
    UNREADY = "UNREADY"
    """The machine is not what it should be (`reason`): no job can run here."""
    FROZEN = "FROZEN"
    """The bus was away too long: the job is frozen until we hear `continue`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the job says it is."""

    step: float
    total: float | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU, as NVML sees it."""

    index: int
    util: float = 0.0
    temp_c: float = 0.0
    mem_used_mb: float = 0.0
    ecc_errors: int = 0
    """Memory errors that could not be corrected, since the driver was loaded."""
    fault: str = ""
    """Why it cannot be used at all, e.g. that it fell off the bus."""


@dataclass(frozen=True, slots=True)
class VmReadings:
    """What a VM measures of itself. Both stores keep it as one document: a field more is declared
    here, and in messaging/wire.py with its bounds."""

    gpus: tuple[GpuReading, ...] = ()

    def said(self) -> dict[str, object]:
        """What was measured; what is at its default says nothing."""
        return {name: value for name in READINGS if (value := getattr(self, name)) != _UNSAID[name]}

    def over(self, older: VmReadings) -> VmReadings:
        """What this one does not say stays as an older one said."""
        return replace(older, **self.said())  # type: ignore[arg-type]


_UNSAID = {each.name: each.default for each in fields(VmReadings)}
READINGS = tuple(_UNSAID)
"""The names of its fields."""
NOTHING_READ = VmReadings()


@dataclass(frozen=True, slots=True)
class Introduction:
    """How a worker makes itself known: the public keys of this boot, and the token that ties them
    to its instance."""

    keys: WorkerPublicKeys
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """From a worker. v1 sends the first four; v2 fences itself with attempt and lease."""

    status: HeartbeatStatus | str
    """A str only for v1 progress notes (wf-…)."""
    vm_name: str
    job_id: str | None = None
    user_id: str = "0"
    version: int = 2
    attempt: int | None = None
    lease_id: str | None = None
    seq: int = 0
    instance_id: str = ""
    boot_nonce: str = ""
    zone: str = ""
    address: str = ""
    """Where other VMs reach it."""
    exit_code: int | None = None
    reason: str = ""
    progress: Progress | None = None
    checkpoint_step: float | None = None
    readings: VmReadings = NOTHING_READ
    note: Mapping[str, object] = field(default_factory=dict)
    introduction: Introduction | None = None


@dataclass(frozen=True, slots=True)
class Canary:
    """The leader's own message on the heartbeat topic; its publish time is the bus's clock."""

    term: int
    seq: int


@dataclass(frozen=True, slots=True)
class Peer:
    """A member of a job on several VMs, and where the others reach it."""

    rank: int
    address: str


@dataclass(frozen=True, slots=True)
class Size:
    """How large an elastic job is now. Of two sizes the one with the greater generation holds."""

    generation: int
    least: int
    most: int
    members: tuple[Peer, ...]
    """By rank. Ranks stay with their members, so after a loss some are missing."""


@dataclass(frozen=True, slots=True)
class StartJob:
    """Run this attempt on these slots."""

    vm_name: str
    boot_nonce: str
    spec: WorkerSpec
    cluster: str
    region: str
    attempt: int
    lease_id: str
    slots: tuple[int, ...]
    rank: int = 0
    world_size: int = 1
    leader_address: str = ""
    resume: bool = False
    """A later attempt: tell the job where its checkpoints are."""
    barrier: bool = False
    """Claim it, but run nothing before GoJob: the other members of its gang must be there."""
    size: Size | None = None
    """Of an elastic job."""
    user_draw: int = 0
    """Which of the users for jobs it runs as, where jobs have users of their own: the same for all
    members and attempts of a job, on whatever VM. 0: the VM draws."""
    secret_values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of its environment that stand in the sealed message alone."""
    tokens: Tokens = field(default_factory=dict, repr=False)
    """They stand in the sealed message alone."""

    @property
    def job_name(self) -> str:
        """The job that people know: a member's own id has its rank at the end."""
        return name_of_gang(self.spec.job_id, self.rank)

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs of its slots; the slot of a job without GPUs is none."""
        return gpus_among(self.slots, self.spec.gpu_count)

    @property
    def on_several_vms(self) -> bool:
        """A member of a gang, or of an elastic job, which may become several."""
        return self.world_size > 1 or self.size is not None


@dataclass(frozen=True, slots=True)
class _ToAttempt:
    """To the VM that works for one attempt."""

    vm_name: str
    boot_nonce: str
    job_id: str
    user_id: str
    attempt: int
    lease_id: str


@dataclass(frozen=True, slots=True)
class StopJob(_ToAttempt):
    """End this attempt: SIGTERM, grace, SIGKILL."""

    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class ContinueJob(_ToAttempt):
    """Your lease still lives: thaw and go on."""

    answers: int = 0
    """The number of the heartbeat that it answers: a late word may speak of an earlier freeze."""


@dataclass(frozen=True, slots=True)
class GoJob(_ToAttempt):
    """All members of the gang are there: begin."""


@dataclass(frozen=True, slots=True)
class ResizeJob(_ToAttempt):
    """The job has another size now: tell its processes."""

    size: Size


@dataclass(frozen=True, slots=True)
class RenewTokens(_ToAttempt):
    """New tokens for the attempt. In the outbox it has none: they are minted when it is sent."""

    tenant_id: str
    tokens: Tokens = field(default_factory=dict, repr=False)
    rank: int = 0


@dataclass(frozen=True, slots=True)
class DrainVm:
    """Take no more work; say DRAINED when idle."""

    vm_name: str
    boot_nonce: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeepWarm:
    """You are idle on purpose: do not power yourself off."""

    vm_name: str
    boot_nonce: str


Control = StartJob | StopJob | ContinueJob | GoJob | ResizeJob | RenewTokens | DrainVm | KeepWarm


@dataclass(frozen=True, slots=True)
class OutMessage:
    """An intent to publish, committed with the change that caused it."""

    topic: str
    body: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """An OutMessage with its place in the outbox."""

    outbox_id: int
    message: OutMessage


@dataclass(frozen=True, slots=True)
class InMessage:
    """A message as the bus delivered it. `ack_id` is opaque; acknowledge after the commit."""

    ack_id: str
    message_id: str
    publish_time: datetime
    body: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    delivery_attempt: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionFault:
    """A lasting subscription of ours that was not as it must be."""

    name: str
    problem: str
    made_again: bool
    """False: only a human can mend it."""
