"""Who sent a heartbeat: checked with the keys that the VM's worker made itself known with.

A heartbeat that fails a check changes nothing: it is counted, and logged now and then. A worker
that is not known yet introduces itself with an identity token; the token is checked apart
(worker_admission.py) and its heartbeat comes back when that is done.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import structlog

from core.alerts import WORKER_UNPROVEN
from core.changes import Change
from core.messages import Canary, Heartbeat, InMessage, Introduction
from core.vm import Vm
from core.worker_identity import IdentityRefused, ProvenKeys, VmIdentity
from messaging.proofs.control import SchedulerSigner
from messaging.proofs.heartbeats import (
    BadProof,
    HeartbeatVerifier,
    ProofFault,
    ProofKind,
    check_introduction,
)
from messaging.proofs.texts import BadKey
from scheduler.cycle.heartbeats import Proven, ReceivedHeartbeat

log = structlog.get_logger("worker_checks")
VERIFIERS_MAX = 200_000
"""More than VMs, some 0.7 kB each: to make one costs as much as to check fifty heartbeats."""
VERDICTS_MAX = 4_096
FAILING_MAX = 1_000
FAILING_AFTER = 10
"""Refused heartbeats of one VM before people are told."""
FAILING_FOR = timedelta(minutes=5)
"""How long after the last one the alert stands."""
LOG_EVERY = timedelta(minutes=1)
_PROVEN = {kind: Proven(signed=kind is ProofKind.SIGNED) for kind in ProofKind}


class Unproven(StrEnum):
    """Why a heartbeat was refused, beside the faults of its proof."""

    NOT_INTRODUCED = "not_introduced"
    """Of a boot whose keys are not known."""
    IDENTITY_REFUSED = "identity_refused"
    """Its identity token proves nothing."""
    OTHER_INSTANCE = "other_instance"
    """Its identity token is another instance's."""
    OLDER_BOOT = "older_boot"
    """Its identity token is not newer than the one of the keys that are known."""
    BAD_KEYS = "bad_keys"
    TOO_MANY = "too_many"
    """More introductions than can be looked at; the worker says it again."""


@dataclass(slots=True)
class Failing:
    """Refused heartbeats that name one VM."""

    count: int
    last: datetime
    logged: datetime
    why: str


@dataclass(slots=True)
class WorkerChecks:
    """What this replica knows of workers' keys. All of it can be found again from the rows."""

    signer: SchedulerSigner
    project: str
    count: Callable[[str], None] = lambda _: None
    """Told of each refused heartbeat."""
    unjudged: dict[str, tuple[Vm, ReceivedHeartbeat]] = field(default_factory=dict)
    """Message id → a heartbeat of this cycle that introduces a worker, and of which nothing was
    checked yet, neither signature nor token."""
    unheard: dict[str, str] = field(default_factory=dict)
    """VM → boot nonce of workers that are known and still introduce themselves: they have heard
    nothing from us, perhaps because their control subscription is lost."""
    now: datetime | None = None
    """Of the cycle's snapshot."""
    _verifiers: OrderedDict[tuple[bytes, str], HeartbeatVerifier] = field(
        default_factory=OrderedDict
    )
    _verdicts: OrderedDict[bytes, VmIdentity | IdentityRefused] = field(default_factory=OrderedDict)
    _failing: dict[str, Failing] = field(default_factory=dict)
    _canary: tuple[int, int] = (0, 0)

    def begin(self, now: datetime) -> None:
        """A new look at the same or at other mail."""
        self.now = now
        self.unjudged.clear()
        self.unheard.clear()

    # --- heartbeats ----------------------------------------------------------------------

    def check(self, vm: Vm, item: ReceivedHeartbeat) -> Proven | None:
        """What is proven of the sender; None: nothing, or not yet."""
        known, heartbeat = vm.worker_keys, item.heartbeat
        try:
            if known is not None and vm.boot_nonce == heartbeat.boot_nonce:
                proven = self._by_known_keys(known, vm.boot_nonce, item)
                if heartbeat.introduction is not None:
                    self.unheard[vm.name] = vm.boot_nonce
                return proven
            if heartbeat.introduction is None:
                self._refuse(vm, Unproven.NOT_INTRODUCED)
                return None
            return self._by_introduction(vm, item, heartbeat.introduction)
        except BadProof as error:
            self._refuse(vm, error.fault)
        except BadKey:
            self._refuse(vm, Unproven.BAD_KEYS)
        return None

    def _by_known_keys(self, known: ProvenKeys, boot_nonce: str, item: ReceivedHeartbeat) -> Proven:
        key = (known.public.signing, boot_nonce)
        verifier = self._verifiers.get(key)
        if verifier is None:
            verifier = HeartbeatVerifier.of(known.public, boot_nonce, self.signer.keys)
            self._verifiers[key] = verifier
            if len(self._verifiers) > VERIFIERS_MAX:
                self._verifiers.popitem(last=False)
        return _PROVEN[verifier.check(item.body, item.proof)]

    def _by_introduction(
        self, vm: Vm, item: ReceivedHeartbeat, introduction: Introduction
    ) -> Proven | None:
        public = introduction.keys
        verdict = self._verdicts.get(mark_of(introduction))
        if isinstance(verdict, IdentityRefused):
            self._refuse(vm, Unproven.IDENTITY_REFUSED, verdict.reason)
            return None
        if verdict is None:
            self.unjudged[item.message_id] = (vm, item)
            return None
        check_introduction(public, item.body, item.proof)
        if not self.is_instance(vm, item.heartbeat, verdict):
            self._refuse(vm, Unproven.OTHER_INSTANCE)
            return None
        if vm.worker_keys is not None and verdict.issued_at <= vm.worker_keys.issued_at:
            self._refuse(vm, Unproven.OLDER_BOOT)
            return None
        return Proven(signed=True, keys=ProvenKeys(public, verdict.issued_at))

    def is_signed(self, vm: Vm, item: ReceivedHeartbeat, introduction: Introduction) -> bool:
        """By the keys that it brings. Else it is refused: its token is not worth a check."""
        try:
            check_introduction(introduction.keys, item.body, item.proof)
        except BadProof as error:
            self._refuse(vm, error.fault)
        except BadKey:
            self._refuse(vm, Unproven.BAD_KEYS)
        else:
            return True
        return False

    def crowded_out(self, vm: Vm) -> None:
        """One of its introductions found no room."""
        self._refuse(vm, Unproven.TOO_MANY)

    def is_instance(self, vm: Vm, said: Heartbeat, proven: VmIdentity) -> bool:
        """The token is the instance's that the row and the heartbeat name. What Compute said of the
        VM stands in the row; before it has listed the VM, no token counts."""
        return self.fits(vm, said, proven) and vm.instance_id == proven.instance_id

    def fits(self, vm: Vm, said: Heartbeat, proven: VmIdentity) -> bool:
        """The same, as far as the row knows the VM."""
        return (
            proven.project == self.project
            and proven.instance_name == vm.name == said.vm_name
            and proven.instance_id == said.instance_id
            and vm.instance_id in ("", proven.instance_id)
            and proven.zone == said.zone
            and vm.zone in ("", proven.zone)
        )

    def judged(self, introduction: Introduction, verdict: VmIdentity | IdentityRefused) -> None:
        """What came of a token; the heartbeat that brought it is looked at again."""
        self._verdicts[mark_of(introduction)] = verdict
        if len(self._verdicts) > VERDICTS_MAX:
            self._verdicts.popitem(last=False)

    # --- canaries ------------------------------------------------------------------------

    def is_canary(self, canary: Canary, message: InMessage) -> bool:
        """Whether a leader of ours sent it, and it did not come before."""
        try:
            self.signer.check_canary(message)
        except BadProof as error:
            self.count(f"canary_{error.fault}")
            return False
        number = (canary.term, canary.seq)
        rising, self._canary = number > self._canary, max(number, self._canary)
        return rising

    # --- what is refused -----------------------------------------------------------------

    def _refuse(self, vm: Vm, why: Unproven | ProofFault, words: str = "") -> None:
        self.count(str(why))
        assert self.now is not None, "a cycle has begun"
        known = self._failing.get(vm.name)
        if known is None or self.now - known.last > FAILING_FOR:
            known = Failing(0, self.now, self.now - LOG_EVERY, "")
            if len(self._failing) < FAILING_MAX:
                self._failing[vm.name] = known
        known.count, known.last, known.why = known.count + 1, self.now, words or str(why)
        if self.now - known.logged >= LOG_EVERY:
            known.logged = self.now
            log.warning("heartbeat refused", vm=vm.name, why=str(why), words=words)

    def alerts(
        self, open_alerts: Mapping[tuple[str, str], object], names: Mapping[str, str]
    ) -> Sequence[Change]:
        """About VMs whose heartbeats keep failing. `names`: of the VMs that there are."""
        now = self.now
        assert now is not None, "a cycle has begun"
        changes: list[Change] = []
        for name, known in list(self._failing.items()):
            is_open = (WORKER_UNPROVEN.name, name) in open_alerts
            if name not in names or now - known.last > FAILING_FOR:
                del self._failing[name]
            elif known.count >= FAILING_AFTER and not is_open:
                changes.append(WORKER_UNPROVEN.raised(name, now, vm=name, why=known.why))
        for kind, name in sorted(open_alerts):
            if kind == WORKER_UNPROVEN.name and name not in self._failing:
                changes.append(WORKER_UNPROVEN.cleared(name, now))
        return changes


def mark_of(introduction: Introduction) -> bytes:
    """Of its token and keys."""
    public = introduction.keys
    return hashlib.sha256(public.signing + public.sealing + introduction.token.encode()).digest()
