"""I9: no worker and no scheduler is believed to have said what it did not say.

The simulation knows which boots there really were, with which keys, and what leaders really
ordered. What the store and the workers believe is compared with that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from core.changes import Change, Send, VmHeartbeat, VmMove
from core.messages import Control, InMessage, OutMessage
from core.names import Names
from core.vm import Vm
from messaging.codec import decode_control, encode_control
from messaging.proofs.keys import WorkerKeys

_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)
Order = tuple[str, str, bytes]
"""VM, kind and body of a control message."""


class WorkerTruth:
    """Feed it with commits, boots and what workers take; `broken` ends the run."""

    def __init__(self, names: Names, broken: Callable[..., None]) -> None:
        self._names, self._broken = names, broken
        self._boots: dict[str, tuple[str, WorkerKeys]] = {}
        """Boot nonce → VM and keys."""
        self._ordered: Counter[Order] = Counter()
        self._starts: set[bytes] = set()
        self._taken: Counter[tuple[str, Order]] = Counter()
        self._nonces: dict[str, str] = {}
        """VM row → the boot that it is believed to run."""
        self._seqs: dict[tuple[str, str], int] = {}
        self.faulty: set[str] = set()
        """VMs that booted with a bad GPU."""
        self.unready: set[str] = set()
        """VMs whose worker cannot work."""

    def boots(self, vm_name: str, nonce: str, keys: WorkerKeys) -> None:
        self._boots[nonce] = (vm_name, keys)

    def committed(self, change: Change) -> None:
        """What the store believes now."""
        match change:
            case Send(message) if message.topic == self._names.control_topic:
                arrived = InMessage("", "", _NO_TIME, message.body, message.attributes)
                self._ordered[self._order(decode_control(arrived))] += 1
                if message.attributes["kind"] == "start":
                    self._starts.add(message.body)
            case VmMove(before, after):
                self._vm(before, after)
            case VmHeartbeat(uid, seq=seq):
                self._heartbeat(uid, seq)
            case _:
                pass

    def _vm(self, before: Vm, after: Vm) -> None:
        if after.speaks_v1:
            pass  # its workers prove nothing: their clusters are for trusted tenants
        elif after.boot_nonce and after.boot_nonce != before.boot_nonce:
            name, keys = self._boots.get(after.boot_nonce, ("", None))
            if name != after.name:
                self._broken("I9", f"{after.name} never booted as {after.boot_nonce}", after.name)
            elif keys is None or after.worker_keys is None:
                self._broken("I9", f"{after.name} booted without keys", after.name)
            elif keys.public != after.worker_keys.public:
                self._broken("I9", f"{after.name} is believed to have other keys", after.name)
        elif after.worker_keys != before.worker_keys:
            self._broken("I9", f"{after.name} changed its keys within a boot", after.name)
        self._nonces[after.uid] = after.boot_nonce
        if len(after.health.gpus) > len(before.health.gpus) and after.name not in self.faulty:
            self._broken("I9", f"{after.name} is believed to have a bad GPU", after.name)
        if after.health.unready and after.name not in self.unready:
            self._broken("I9", f"{after.name} is believed to be unready", after.name)

    def _heartbeat(self, uid: str, seq: int) -> None:
        """Life is shown by rising numbers alone."""
        boot = (uid, self._nonces.get(uid, ""))
        if not seq:
            return  # v1 workers number nothing
        if seq <= self._seqs.get(boot, -1):
            self._broken("I9", f"{boot} was heard by number {seq}, which had been heard before")
        self._seqs[boot] = seq

    def taken(self, nonce: str, control: Control) -> None:
        """A worker has believed that the scheduler sent this."""
        order = self._order(control)
        self._taken[nonce, order] += 1
        if self._taken[nonce, order] > self._ordered[order]:
            said = "nobody gave" if not self._ordered[order] else "was taken before"
            what = f"{control.vm_name} took an order that {said}: {type(control).__name__}"
            self._broken("I9", what, control.vm_name)

    def _order(self, control: Control) -> Order:
        message = encode_control(control, self._names)
        return control.vm_name, message.attributes["kind"], message.body

    def published(self, message: OutMessage) -> None:
        """What everybody on the topic can read."""
        if message.body in self._starts:
            self._broken("I9", f"a start for {message.attributes.get('vm_name')} is not sealed")

    def opened(self, what: str) -> None:
        self._broken("I9", what)
