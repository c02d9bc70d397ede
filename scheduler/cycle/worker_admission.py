"""Checks the identity tokens of workers that introduce themselves, and makes the control
subscriptions of the ones that are who they say. Beside the cycle: the issuer and the bus are asked,
and no cycle waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from core.cluster import ClusterSpec
from core.errors import ZenError
from core.messages import Heartbeat, InMessage, Introduction
from core.ports import Cloud
from core.vm import Vm
from core.worker_identity import IdentityRefused, VmIdentity
from scheduler.cycle.control_subscriptions import ControlSubscriptionCare
from scheduler.cycle.worker_checks import WorkerChecks

log = structlog.get_logger("admission")
WAITING_MAX = 1_000
AT_ONCE = 8
UNSURE_S = 1.0


@dataclass(frozen=True, slots=True)
class Applicant:
    """A heartbeat that waits for what its token proves."""

    vm: Vm
    heartbeat: Heartbeat
    introduction: Introduction
    pool: str
    message: InMessage


class WorkerAdmission:
    """AT_ONCE of them at a time. `back` brings a heartbeat into the next cycle. Its VM is READY in
    that cycle and may be given work at once, so its subscription is made before."""

    def __init__(
        self,
        clouds: Mapping[str, Cloud],
        checks: WorkerChecks,
        back: Callable[[InMessage], None],
        subscriptions: ControlSubscriptionCare,
    ) -> None:
        self._clouds, self._checks, self._back = clouds, checks, back
        self._subscriptions = subscriptions
        self._waiting: asyncio.Queue[Applicant] = asyncio.Queue(WAITING_MAX)

    def take(
        self, messages: Sequence[InMessage], clusters: Mapping[str, ClusterSpec]
    ) -> list[InMessage]:
        """Of these messages the ones that stay with us, until their tokens are checked. One for
        which there is no room is said again by its worker."""
        unjudged = self._checks.unjudged
        taken = []
        for message in messages if unjudged else ():
            vm, heartbeat = unjudged.pop(message.message_id, (None, None))
            if vm is None or heartbeat is None or heartbeat.introduction is None:
                continue
            spec = clusters.get(vm.cluster)
            if spec is None or self._waiting.full():
                continue
            introduction = heartbeat.introduction
            self._waiting.put_nowait(Applicant(vm, heartbeat, introduction, spec.pool, message))
            taken.append(message)
        unjudged.clear()
        for vm_name, boot_nonce in self._checks.unheard.items():
            self._subscriptions.doubt(vm_name, boot_nonce)
        return taken

    async def run(self) -> None:
        """For ever, while we lead."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            applicant = await self._waiting.get()
            try:
                verdict = await self._verdict(applicant)
                if isinstance(verdict, VmIdentity):
                    await self._subscribe(applicant, verdict)
            except ZenError as error:
                # Nothing is decided: it is looked at again.
                log.warning("a worker waits", vm=applicant.vm.name, why=str(error))
                await asyncio.sleep(UNSURE_S)
            else:
                self._checks.judged(applicant.introduction, verdict)
            self._back(applicant.message)

    async def _verdict(self, applicant: Applicant) -> VmIdentity | IdentityRefused:
        identities = self._clouds[applicant.pool].identities
        if identities is None:
            return IdentityRefused(f"nobody vouches for machines of pool {applicant.pool}")
        introduction = applicant.introduction
        return await identities.verify(introduction.token, introduction.keys.audience)

    async def _subscribe(self, applicant: Applicant, proven: VmIdentity) -> None:
        vm, heartbeat = applicant.vm, applicant.heartbeat
        if self._checks.is_instance(vm, heartbeat, proven):
            await self._subscriptions.make(vm.name, heartbeat.boot_nonce)
