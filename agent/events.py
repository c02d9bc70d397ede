"""What the agent's state machine hears and says, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from core.job_tokens import Tokens
from core.messages import Control, Heartbeat, Progress, Size, StartJob, VmReadings


@dataclass(frozen=True, slots=True)
class Identity:
    """Which VM this is, and which boot of it: names come back on other machines."""

    vm_name: str
    instance_id: str
    zone: str
    boot_nonce: str
    address: str = ""
    """Where other VMs of its network reach it."""


# --- inputs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listening:
    """Our control subscription exists: from now on nothing that is sent to us is lost."""


@dataclass(frozen=True, slots=True)
class ControlReceived:
    """A control message for any VM."""

    control: Control


@dataclass(frozen=True, slots=True)
class HeartbeatsAnswered:
    """What became of that PublishHeartbeats."""

    number: int
    confirmed: bool
    """False: the bus did not confirm it in time; it may have it all the same."""


@dataclass(frozen=True, slots=True)
class Started:
    """The job's process runs."""

    lease_id: str


@dataclass(frozen=True, slots=True)
class StartFailed:
    """There never was a process: nothing to run, or not allowed."""

    lease_id: str
    exit_code: int | None
    """None: it was not the job's own doing, e.g. its code could not be fetched. That costs none of
    its retries."""
    reason: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The job's process and all that it left behind are gone, its log is stored."""

    lease_id: str
    exit_code: int | None
    """As a shell counts: 128 + the signal if a signal ended it. None: something failed it that was
    not its own doing, e.g. its outputs could not be stored."""
    reason: str
    killed: bool = field(default=False, compare=False)
    """In the middle of what it did."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """The job has written to its status file."""

    lease_id: str
    progress: Progress | None
    checkpoint_step: float | None


@dataclass(frozen=True, slots=True)
class ReadingsTaken:
    """Fresh readings of all GPUs."""

    readings: VmReadings


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class ReclaimNotice:
    """The cloud takes this VM away, mostly within seconds."""

    reason: str = ""
    """Empty: a spot VM that is reclaimed."""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Asked to end in an orderly way."""

    reason: str
    grace_s: float | None = None
    """How long jobs may go on: the machine itself goes off then. None: only the agent goes."""


@dataclass(frozen=True, slots=True)
class ParentGone:
    """The process that pretends to be our VM has died."""


Input = (
    Listening
    | ControlReceived
    | HeartbeatsAnswered
    | Started
    | StartFailed
    | Exited
    | Progressed
    | ReadingsTaken
    | Tick
    | ReclaimNotice
    | ShutDown
    | ParentGone
)


# --- outputs ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublishHeartbeats:
    """Publish these heartbeats together and answer HeartbeatsAnswered with the number. There is
    never more than one without an answer."""

    number: int
    heartbeats: tuple[Heartbeat, ...]


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Run the job; answer Started or StartFailed, later Exited."""

    order: StartJob


class Signal(StrEnum):
    """What a job's processes can be told."""

    TERM = "TERM"
    KILL = "KILL"
    STOP = "STOP"
    CONT = "CONT"


@dataclass(frozen=True, slots=True)
class SignalGroup:
    """To the process group of that job. Without effect if it is gone."""

    lease_id: str
    signal: Signal


@dataclass(frozen=True, slots=True)
class TellSize:
    """The job's processes learn its new size: by its file, then by a signal. Without effect if
    they are gone."""

    lease_id: str
    size: Size


@dataclass(frozen=True, slots=True)
class GiveTokens:
    """From now on the attempt uses these. Without effect if it is gone."""

    lease_id: str
    tokens: Tokens = field(repr=False)


class ExitKind(StrEnum):
    """Why the agent ends."""

    SHUT_DOWN = "shut_down"
    POWER_OFF = "power_off"
    PARENT_GONE = "parent_gone"


@dataclass(frozen=True, slots=True)
class Exit:
    """The last output: end the process, on POWER_OFF the VM too."""

    kind: ExitKind
    reason: str


Output = PublishHeartbeats | StartProcess | SignalGroup | TellSize | GiveTokens | Exit
