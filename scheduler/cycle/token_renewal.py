"""Keeps the tokens of attempts fresh: a message of its own goes through the outbox, as a start
does, and its tokens are minted when it is sent. Another leader knows no spans: it renews all."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

import structlog

from config.live import LiveSettings
from core.changes import Send, Snapshot
from core.errors import SecretsAway, StoreDown, TermPassed
from core.job import Job, JobStatus
from core.job_tokens import MintTokens, TokenKind, TokenRequest, Tokens, TokenSpan, due, span_of
from core.messages import OutMessage, RenewTokens
from core.ports import Clock, Store
from core.vm import Vm
from messaging.codec import encode_control
from messaging.proofs.control import SEAL_TO
from messaging.proofs.texts import to_text
from messaging.token_parts import wanting
from scheduler.cycle.leadership import Leadership
from scheduler.secrets.job_tokens import kinds_for

log = structlog.get_logger("tokens")
LOOK_S = 5.0
AGAIN_S = 60.0
"""A renewal that was refused is asked for again. One that is still unsent is not."""
AT_ONCE = 500
"""Messages of one look: a leader that has just begun renews all, not all at once, and 10,000 within
300 s, though there is a look every 10 s only."""
SPANS_MAX = 200_000
_AT_WORK = frozenset(
    {JobStatus.STARTING, JobStatus.RUNNING, JobStatus.PREEMPTING, JobStatus.STOPPING}
)


def addressed(message: OutMessage, vm: Vm, kinds: Collection[TokenKind]) -> OutMessage:
    """For the outbox: for whom it will be sealed, and which tokens it is sent with."""
    recipient = to_text(vm.worker_keys.public.sealing) if vm.worker_keys is not None else ""
    out = replace(message, attributes={**message.attributes, SEAL_TO: recipient})
    return wanting(out, kinds)


class TokenRenewal:
    """The leader's. `mint` is what the relay mints with, so that it is known when tokens end;
    `seen` is shown the newest snapshot."""

    def __init__(
        self,
        mint: MintTokens,
        store: Store,
        leadership: Leadership,
        settings: LiveSettings,
        clock: Clock,
    ) -> None:
        self._mint, self._store, self._leadership = mint, store, leadership
        self._settings, self._clock = settings, clock
        self._spans: dict[str, TokenSpan] = {}
        """By lease."""
        self._asked: dict[str, float] = {}
        self._look_at = clock.monotonic()
        self._messages: dict[str, OutMessage] = {}
        """By lease: to be put into the outbox."""
        self._unsent: set[str] = set()
        """Leases whose renewal stands in the outbox, or soon will."""
        self._wake = asyncio.Event()

    async def mint(self, request: TokenRequest) -> Tokens:
        """The tokens, whose end is remembered."""
        try:
            tokens = await self._mint(request)
        except (SecretsAway, StoreDown):
            raise  # its message is kept, and asks again
        except Exception:
            self._unsent.discard(request.lease_id)  # its message is given up
            raise
        self._unsent.discard(request.lease_id)
        self._spans[request.lease_id] = span_of(tokens, self._clock.now().timestamp())
        self._asked.pop(request.lease_id, None)
        if len(self._spans) > SPANS_MAX:
            del self._spans[next(iter(self._spans))]
        return tokens

    def seen(self, snapshot: Snapshot) -> None:
        """Writes down what is to be sent: the snapshot is the store's."""
        if self._messages or self._clock.monotonic() < self._look_at:
            return
        self._look_at = self._clock.monotonic() + LOOK_S
        current = self._settings.current
        v1 = current.rules.v1_clusters  # workers that know no tokens
        jobs = {
            job.lease.lease_id: job
            for job in snapshot.jobs
            if job.lease is not None
            and job.status in _AT_WORK
            and job.cluster not in v1
            and kinds_for(job.spec, current)
        }
        self._unsent &= jobs.keys()
        if not jobs:
            return
        now = self._clock.now().timestamp()
        self._asked = {lease: at for lease, at in self._asked.items() if lease in jobs}
        sendable = [lease for lease in jobs if lease not in self._unsent]
        found = due(sendable, self._spans, self._asked, now, AGAIN_S)[:AT_ONCE]
        vms = {vm.uid: vm for vm in snapshot.vms} if found else {}
        for lease in found:
            self._asked[lease] = now
            if (message := self._message(jobs[lease], vms)) is not None:
                self._messages[lease] = message
        if self._messages:
            self._unsent |= self._messages.keys()
            self._wake.set()

    def _message(self, job: Job, vms: Mapping[str, Vm]) -> OutMessage | None:
        lease = job.lease
        assert lease is not None, "it was asked for by its lease"
        vm = vms.get(lease.vm_uid)
        if vm is None or vm.worker_keys is None:
            return None
        order = RenewTokens(
            vm_name=lease.vm_name,
            boot_nonce=vm.boot_nonce,
            job_id=job.spec.job_id,
            user_id=job.spec.user_id,
            attempt=job.attempt,
            lease_id=lease.lease_id,
            tenant_id=job.spec.tenant_id,
            rank=job.gang.rank if job.gang is not None else 0,
        )
        current = self._settings.current
        return addressed(encode_control(order, current.names), vm, kinds_for(job.spec, current))

    async def send(self) -> None:
        """What was written down, into the outbox."""
        messages, self._messages = self._messages, {}
        if not messages:
            return
        batch = tuple(Send(message) for message in messages.values())
        try:
            await self._store.commit([batch], self._leadership.term())
        except BaseException:
            self._unsent -= messages.keys()  # another look asks for them again
            raise

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.send()
            except StoreDown as error:
                log.warning("tokens are renewed later", why=str(error))
            except TermPassed as error:
                self._leadership.lost(str(error))
