"""Checks the identity tokens of workers that introduce themselves, beside the cycle: the
check may have to ask the issuer for its keys, and no cycle waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from core.cluster import ClusterSpec
from core.messages import InMessage, Introduction
from core.ports import Cloud
from core.worker_identity import IdentityRefused, IdentityUnsure, VmIdentity
from scheduler.cycle.worker_checks import WorkerChecks

log = structlog.get_logger("admission")
WAITING_MAX = 1_000
UNSURE_S = 1.0


@dataclass(frozen=True, slots=True)
class Applicant:
    """A heartbeat that waits for what its token proves."""

    introduction: Introduction
    pool: str
    message: InMessage


class WorkerAdmission:
    """One token at a time. `back` brings a heartbeat into the next cycle."""

    def __init__(
        self,
        clouds: Mapping[str, Cloud],
        checks: WorkerChecks,
        back: Callable[[InMessage], None],
    ) -> None:
        self._clouds, self._checks, self._back = clouds, checks, back
        self._waiting: asyncio.Queue[Applicant] = asyncio.Queue(WAITING_MAX)

    def take(
        self, messages: Sequence[InMessage], clusters: Mapping[str, ClusterSpec]
    ) -> list[InMessage]:
        """Of these messages the ones that stay with us, until their tokens are checked. One for
        which there is no room is said again by its worker."""
        unjudged = self._checks.unjudged
        taken = []
        for message in messages if unjudged else ():
            vm, introduction = unjudged.pop(message.message_id, (None, None))
            spec = clusters.get(vm.cluster) if vm is not None else None
            if spec is None or introduction is None or self._waiting.full():
                continue
            self._waiting.put_nowait(Applicant(introduction, spec.pool, message))
            taken.append(message)
        unjudged.clear()
        return taken

    async def run(self) -> None:
        """For ever, while we lead."""
        while True:
            applicant = await self._waiting.get()
            try:
                verdict = await self._verdict(applicant)
            except IdentityUnsure as error:
                log.warning("identity token not checked", why=str(error))
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
