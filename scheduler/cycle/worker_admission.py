"""Checks the identity tokens of workers that introduce themselves, and makes the control
subscriptions of the ones that are who they say. Beside the cycle: the issuer and the bus are asked,
and no cycle waits for them."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence

import structlog

from core.cluster import ClusterSpec
from core.errors import ZenError
from core.messages import InMessage
from core.ports import Cloud, Ids
from core.worker_identity import IdentityRefused, VmIdentity
from scheduler.cycle.control_subscriptions import ControlSubscriptionCare
from scheduler.cycle.introductions import Applicant, choose
from scheduler.cycle.worker_checks import VERDICTS_MAX, WorkerChecks, mark_of

log = structlog.get_logger("admission")
AT_ONCE = 8
UNSURE_S = 1.0
UNLISTED_S = 0.5
"""How soon a worker is looked at again whose VM Compute has not listed yet."""


class WorkerAdmission:
    """AT_ONCE of them at a time. `back` brings a heartbeat into the next cycle. Its VM is READY in
    that cycle and may be given work at once, so its subscription is made before.

    A worker may speak before Compute has listed its VM. Its token says which instance it is, but
    not that this is the one we asked for: it waits until the row has Compute's number, for as long
    as the row is there."""

    def __init__(
        self,
        clouds: Mapping[str, Cloud],
        checks: WorkerChecks,
        back: Callable[[InMessage], None],
        subscriptions: ControlSubscriptionCare,
        ids: Ids,
    ) -> None:
        self._clouds, self._checks, self._back = clouds, checks, back
        self._subscriptions, self._ids = subscriptions, ids
        self._waiting: asyncio.Queue[Applicant] = asyncio.Queue()
        self._waiting_of: Counter[str] = Counter()
        self._proven: OrderedDict[bytes, VmIdentity] = OrderedDict()
        """Of workers whose VM was not listed when their token was checked."""
        self._held: set[bytes] = set()
        """The ones of them that are not looked at for a moment."""

    def take(
        self, messages: Sequence[InMessage], clusters: Mapping[str, ClusterSpec]
    ) -> list[InMessage]:
        """Of these messages the ones that stay with us, until their tokens are checked. One for
        which there is no room is said again by its worker."""
        asking = self._asking(messages, clusters) if self._checks.unjudged else []
        self._checks.unjudged.clear()
        chosen = choose(asking, self._waiting_of, self._ids.seed)
        left = {applicant.message.message_id for applicant in chosen}
        for applicant in asking:
            if applicant.message.message_id not in left:
                self._checks.crowded_out(applicant.vm)
        taken = []
        for applicant in chosen:
            if self._checks.is_signed(applicant.vm, applicant.item, applicant.introduction):
                self._waiting.put_nowait(applicant)
                self._waiting_of[applicant.vm.uid] += 1
                taken.append(applicant.message)
        for vm_name, boot_nonce in self._checks.unheard.items():
            self._subscriptions.doubt(vm_name, boot_nonce)
        return taken

    def _asking(
        self, messages: Sequence[InMessage], clusters: Mapping[str, ClusterSpec]
    ) -> list[Applicant]:
        asking = []
        for message in messages:
            vm, item = self._checks.unjudged.pop(message.message_id, (None, None))
            if vm is None or item is None or item.heartbeat.introduction is None:
                continue
            introduction, spec = item.heartbeat.introduction, clusters.get(vm.cluster)
            if spec is not None and mark_of(introduction) not in self._held:
                asking.append(Applicant(vm, item, introduction, spec.pool, message))
        return asking

    async def run(self) -> None:
        """For ever, while we lead."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            applicant = await self._waiting.get()
            pause_s = 0.0
            try:
                verdict = await self._verdict(applicant)
                if self._is_unlisted(applicant, verdict):
                    pause_s = UNLISTED_S
                else:
                    if isinstance(verdict, VmIdentity):
                        await self._subscribe(applicant, verdict)
                    self._checks.judged(applicant.introduction, verdict)
            except ZenError as error:
                # Nothing is decided: it is looked at again.
                log.warning("a worker waits", vm=applicant.vm.name, why=str(error))
                pause_s = UNSURE_S
            self._give_back(applicant, pause_s)
            if not self._waiting.empty():
                await asyncio.sleep(0)  # a flood of them takes turns with everything else

    def _give_back(self, applicant: Applicant, pause_s: float) -> None:
        """Into the cycle. One that waits keeps its room, and nobody is kept by it."""
        mark = mark_of(applicant.introduction)

        def give() -> None:
            self._held.discard(mark)
            self._waiting_of[applicant.vm.uid] -= 1
            if not self._waiting_of[applicant.vm.uid]:
                del self._waiting_of[applicant.vm.uid]
            self._back(applicant.message)

        if pause_s:
            self._held.add(mark)
            asyncio.get_running_loop().call_later(pause_s, give)
        else:
            give()

    def _is_unlisted(self, applicant: Applicant, verdict: VmIdentity | IdentityRefused) -> bool:
        """Whether the row lacks what the token is to be compared with, and all else fits."""
        vm, heartbeat = applicant.vm, applicant.item.heartbeat
        if vm.instance_id or isinstance(verdict, IdentityRefused):
            return False
        if not self._checks.fits(vm, heartbeat, verdict):
            return False
        self._proven[mark_of(applicant.introduction)] = verdict
        if len(self._proven) > VERDICTS_MAX:
            self._proven.popitem(last=False)
        return True

    async def _verdict(self, applicant: Applicant) -> VmIdentity | IdentityRefused:
        introduction = applicant.introduction
        known = self._proven.pop(mark_of(introduction), None)
        if known is not None:
            return known
        identities = self._clouds[applicant.pool].identities
        if identities is None:
            return IdentityRefused(f"nobody vouches for machines of pool {applicant.pool}")
        return await identities.verify(introduction.token, introduction.keys.audience)

    async def _subscribe(self, applicant: Applicant, proven: VmIdentity) -> None:
        vm, heartbeat = applicant.vm, applicant.item.heartbeat
        if self._checks.is_instance(vm, heartbeat, proven):
            await self._subscriptions.make(vm.name, heartbeat.boot_nonce)
