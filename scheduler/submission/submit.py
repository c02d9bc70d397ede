"""The one way in for a job, whichever door it came through."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from config.live import LiveSettings
from core.access import Tenants, only_tenant
from core.audit_log import Actor, AuditAction, AuditEntry, job_target
from core.changes import AtomicBatch, BatchParts
from core.errors import (
    BadInput,
    Conflict,
    Fault,
    NotFound,
    PriceNotConfirmed,
    QuotaExceeded,
    ZenError,
)
from core.groups import After, GroupKey, Owner, Wait, dependency_words, parse_after, parse_array
from core.job import Job, JobKey
from core.job_fields import JobSpec
from core.members import count_of, first_job_id
from core.ports import Clock, Ids
from core.queueing import QueueRule, due_at
from core.reasons import CommitRefusal
from core.submission import Values, hash_of_values, read_submission, shown
from core.submit_topics import NOBODY
from core.tenants import DEFAULT_TENANT
from core.unified_job import in_manifest_words, is_manifest, native_of_manifest
from scheduler.queue.blocked_clusters import KnownRegionBlocks
from scheduler.submission.cluster_selection import (
    Choice,
    ClusterCandidate,
    candidates,
    choose_for_later,
    standard_cluster,
)
from scheduler.submission.job_ids import key_job_id, readable_id
from scheduler.submission.known_choices import KnownChoices
from scheduler.submission.member_jobs import Agreed, LongSubmissions
from scheduler.submission.quotes import Quote, quote_of
from scheduler.submission.tenant_access import TenantAccess, Terms, told_bound_s
from scheduler.submission.unstorable import refuse_unstorable

Writer = Callable[[AtomicBatch], Awaitable[CommitRefusal | None]]
"""Writes one atomic batch durably, or says which guard refused it."""

Expected = Callable[[JobSpec, str], float | None]
"""How long a job is expected to run in a cluster, if anything like it is known: it makes its place
in the queue."""

_FRESH_ID_TRIES = 5


class ExistingJobs(Protocol):
    """What a submission asks the store when somebody was there before it, and the way in for one
    of many jobs."""

    async def find_job(self, job_id: str, user_id: str | None, tenants: Tenants) -> Job: ...
    async def find_group(self, group: str, user_id: str | None, tenants: Tenants) -> GroupKey: ...
    async def content_hash(self, key: JobKey) -> tuple[str, str] | None: ...
    async def commit_long(self, parts: BatchParts) -> CommitRefusal | None: ...


@dataclass(frozen=True, slots=True)
class SubmissionOptions:
    """What clients of other systems expect of a submission."""

    uuid_ids: bool = False
    """Ids that we make are UUIDs."""
    waits_for_size: bool = False
    """A job that is larger than every VM waits, until its queue time-out, and is not refused."""
    confirmed_usd_per_hour: float | None = None
    """The price that the submitter has agreed to."""
    by: Submitter | None = None
    """Who submits; None: a message of the submit topic."""


NATIVE = SubmissionOptions()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The job is stored. A repeat of the submission gets an equal answer."""

    job_id: str
    user_id: str
    cluster: str
    message: str
    starvation_bound_s: float | None = None
    """It waits for its first start no longer than this. None: the cluster's rule makes no such
    guarantee, or too many wait before it."""
    jobs: int = 1
    """Of an array: how many there are; `job_id` is their group."""
    quote: Quote | None = None
    """What it costs; None: its cluster is not in the configuration any more."""
    tenant_id: str = DEFAULT_TENANT
    new_tenant: bool = field(default=False, compare=False)
    """Nobody knew its tenant before."""
    repeated: bool = field(default=False, compare=False)
    """It was stored before: nothing was written now."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What would become of a submission."""

    spec: JobSpec
    choice: Choice | None
    """None: it would be refused."""
    message: str
    confirm: str | None
    """Why its price would have to be confirmed."""
    candidates: tuple[ClusterCandidate, ...]


@dataclass(frozen=True, slots=True)
class SubmissionPorts:
    """What a submission is written and looked up with."""

    write: Writer
    store: ExistingJobs
    clock: Clock
    ids: Ids


class Submitter(Protocol):
    """Who submits."""

    @property
    def actor(self) -> Actor: ...

    @property
    def tenants(self) -> Tenants:
        """For which it may submit."""
        ...

    def claim(self, named: Owner) -> Owner:
        """The owner of a submission that names this one; refused if it may not be."""
        ...


class Submissions:
    """Checks a submission, chooses its cluster, and writes it once."""

    def __init__(
        self,
        ports: SubmissionPorts,
        settings: LiveSettings,
        *,
        on_new: Callable[[Job, int], None] | None = None,
        door: TenantAccess | None = None,
        expected: Expected = lambda _, __: None,
    ) -> None:
        self._write, self._store = ports.write, ports.store
        self._settings = settings
        self._clock, self._ids = ports.clock, ports.ids
        self._on_new = on_new
        """Called with the first job of a submission, and how many there are."""
        self._long = LongSubmissions()
        self._door = door
        """None: tenants have no limits here."""
        self._expected = expected
        self._choices = KnownChoices()
        self.blocks: KnownRegionBlocks | None = None
        """What regions cannot deliver; None: nothing is known of it here."""

    async def submit(
        self,
        data: object,
        *,
        idempotency_key: str | None,
        confirmed_usd_per_hour: float | None = None,
        options: SubmissionOptions = NATIVE,
        by: Submitter | None = None,
    ) -> Accepted:
        """BadInput with every fault; Conflict when the id is taken by other content;
        PriceNotConfirmed when it costs more than is bought without asking."""
        native, in_words = self._native(data)
        options = SubmissionOptions(
            options.uuid_ids, options.waits_for_size, confirmed_usd_per_hour, by
        )
        try:
            return await self._submit(native, idempotency_key, options)
        except QuotaExceeded:
            raise
        except BadInput as error:
            raise in_words(error) from error

    async def refuse_past_deadline(
        self, data: object, idempotency_key: str | None, by: Submitter
    ) -> None:
        """BadInput for a new job whose deadline is over. For doors where somebody waits for the
        answer: a message may have been on the bus for long, and its job runs all the same. A
        repeat gets its first answer, however late it comes."""
        if not isinstance(data, Mapping) or data.get("deadline") is None:
            return
        refuse_unstorable(data)
        now = self._clock.now()
        key_id = None if idempotency_key is None else key_job_id(idempotency_key)
        values = self._read(data, key_id or "new", None)
        if values["deadline"] > now:
            return
        named = key_id is not None or _brings_id(data)
        if named and await self._stored(JobSpec(**_owned(values, by))) is not None:
            return
        expected = f"a time that is still to come: it is {now:%Y-%m-%dT%H:%M:%SZ}"
        raise BadInput([Fault("deadline", shown(data["deadline"]), expected)])

    def _native(self, data: object) -> tuple[object, Callable[[BadInput], BadInput]]:
        """A submission in our fields, and how its faults are told to its sender."""
        refuse_unstorable(data)
        if not is_manifest(data):
            return data, lambda error: error
        assert isinstance(data, Mapping), "manifests are objects"
        return native_of_manifest(data), lambda e: BadInput(in_manifest_words(e.faults, data))

    async def _submit(self, data: object, key: str | None, options: SubmissionOptions) -> Accepted:
        if key is not None:
            return await self._try_key(data, key, options)
        for _ in range(_FRESH_ID_TRIES - 1):
            try:
                return await self._try(data, None, options)
            except _FreshIdTaken:
                continue
        return await self._try(data, None, options)

    async def _try_key(self, data: object, key: str, options: SubmissionOptions) -> Accepted:
        key_id = key_job_id(key)
        if options.uuid_ids:
            key_id = str(uuid.uuid5(uuid.NAMESPACE_OID, key_id))
        try:
            return await self._try(data, key_id, options)
        except Conflict as error:
            if _brings_id(data):
                raise
            # Who sent a key has never seen the id that we made of it.
            raise Conflict(
                f"Idempotency-Key {shown(key)} was used before with other content (job {key_id}): "
                "take another key, or send exactly the same again"
            ) from error

    async def _try(self, data: object, key_id: str | None, options: SubmissionOptions) -> Accepted:
        now = self._clock.now()
        uid = self._ids.uid(now)
        fresh_id = uid if options.uuid_ids else readable_id(uid)
        sent = self._read(data, key_id or fresh_id, options.by)
        # What a repeat is compared by is what was sent; what is stored says what was agreed to.
        digest = hash_of_values(sent)
        fresh = key_id is None and not _brings_id(data)
        try:
            terms = await self._terms(sent, options.by)
            spec = terms.agreed(sent)
            choice = await self._choose(spec, options, spot_by_default=sent.get("spot") is None)
            waits = await self._waits(spec)
            if choice.quote is not None:
                terms.refuse_dear(spec, choice.quote, options.confirmed_usd_per_hour)
                spec = terms.priced(spec, choice.quote)
        except (BadInput, PriceNotConfirmed):
            # The configuration may have lost the cluster since: a repeat still gets its answer.
            stored = await self._stored(JobSpec(**sent)) if not fresh else None
            if stored is None:
                raise
            return await self._answer_again(JobSpec(**sent), digest, stored, None)
        agreed = await self._agreed(uid, spec, choice, digest, waits)
        refusal = await self._store_jobs(agreed, self._audited(spec, options))
        if refusal is None:
            if self._on_new is not None:
                self._on_new(agreed.first, agreed.count)
            accepted = self._accepted(spec, choice, agreed.first)
            return replace(accepted, new_tenant=True) if terms.new else accepted
        stored = await self._stored(spec)
        if stored is None and agreed.count == 1:
            raise JobNotStored(f"job {spec.job_id} of user {spec.user_id}: {refusal}")
        if fresh:
            raise _FreshIdTaken(f"job id {spec.job_id} was just taken; submit again")
        if stored is None:
            raise Conflict(f"some of {spec.job_id}'s jobs exist already: take another job_id")
        return await self._answer_again(spec, digest, stored, choice)

    def _audited(self, spec: JobSpec, options: SubmissionOptions) -> AtomicBatch:
        if options.by is None:
            return ()
        actor = options.by.actor
        detail = {} if spec.user_id == actor.user_id else {"on_behalf_of": spec.user_id}
        target, now = job_target(spec), self._clock.now()
        submit = AuditAction.SUBMIT
        return (AuditEntry(now, actor, submit, target, spec.tenant_id, detail=detail),)

    async def preview(self, data: object, by: Submitter) -> Preview:
        """What would become of a submission, and what else there is for it; BadInput if no cluster
        has what it asks for, with or without more consent. Nothing is stored."""
        native, in_words = self._native(data)
        try:
            fresh_id = readable_id(self._ids.uid(self._clock.now()))
            sent = self._read(native, fresh_id, by)
            terms = await self._terms(sent, by)
            spec = terms.agreed(sent)
            by_default = sent.get("spot") is None
            found = candidates(spec, self._settings.current.clusters, spot_by_default=by_default)
            try:
                choice = await self._choose(spec, NATIVE, spot_by_default=by_default)
            except BadInput as refusal:
                if not found:
                    raise
                return Preview(spec, None, str(in_words(refusal)), None, tuple(found))
        except QuotaExceeded:
            raise
        except BadInput as error:
            raise in_words(error) from error
        message = f"cluster {choice.cluster}{_machine(choice.quote)}: {choice.reason}"
        confirm = None
        try:
            if choice.quote is not None:
                terms.refuse_dear(spec, choice.quote, None)
        except PriceNotConfirmed as dear:
            confirm = str(dear)
        return Preview(spec, choice, message, confirm, tuple(found))

    def _read(self, data: object, fresh_id: str, by: Submitter | None) -> Values:
        """What was sent, checked; as the submitter's, if it is known who submits."""
        values = read_submission(data, self._settings.current.timers, fresh_id)
        return values if by is None else _owned(values, by)

    async def _terms(self, sent: Values, by: Submitter | None) -> Terms:
        if self._door is None:
            return Terms()
        tenant_id = sent.get("tenant_id", DEFAULT_TENANT)
        return await self._door.terms(tenant_id, by.tenants if by is not None else Tenants())

    async def _agreed(
        self, uid: str, spec: JobSpec, choice: Choice, digest: str, waits: tuple[Wait, ...]
    ) -> Agreed:
        """With what each job is told: by when it starts at the latest."""
        now = self._clock.now()
        expected_s = self._expected(spec, choice.cluster)
        settings = self._settings.current
        due = due_at(now, spec, 0.0, settings.queue, expected_s)
        cluster = settings.by_name.get(choice.cluster)
        told_s = None
        if self._door is not None and cluster is not None and cluster.queue is QueueRule.FAIR:
            # All of the submission among them: who of an array goes first is open.
            count = count_of(spec)
            waiting = await self._door.ahead(spec, cluster.name, count) + count
            longest_s, aging_s = settings.timers.max_runtime_s, (due - now).total_seconds()
            told_s = told_bound_s(aging_s, cluster, longest_s, waiting - spec.replicas)
        return Agreed(uid, spec, choice, now, due, digest, waits, told_s)

    async def _store_jobs(self, agreed: Agreed, audited: AtomicBatch) -> CommitRefusal | None:
        """All jobs of a submission, together or not at all."""
        if not agreed.long:
            return await self._write((*agreed.changes(self._ids), *audited))
        async with self._long.turn():
            return await self._store.commit_long(lambda: agreed.parts(self._ids, audited))

    async def _waits(self, spec: JobSpec) -> tuple[Wait, ...]:
        """What it waits for, found among the user's jobs, then groups; BadInput names the rest."""
        found: list[Wait] = []
        faults: list[Fault] = []
        for word in spec.after:
            after = parse_after(word)
            assert after is not None, f"checked when it came: {word}"
            wait = await self._find(after, spec)
            if wait is None:
                expected = (
                    f"a job or a group that user {spec.user_id} has submitted before for tenant "
                    f"{spec.tenant_id}"
                )
                faults.append(Fault("after", shown(after.needs), expected))
            else:
                found.append(wait)
        if faults:
            raise BadInput(faults)
        return tuple(found)

    async def _find(self, after: After, spec: JobSpec) -> Wait | None:
        """Jobs of other tenants are not there: neither that they exist nor how they end is told."""
        user_id, tenants = spec.user_id, only_tenant(spec.tenant_id)
        try:
            job = await self._store.find_job(after.needs, user_id, tenants)
            return Wait(job.uid, None, after)
        except NotFound:
            pass  # then it may be a group
        try:
            return Wait(None, await self._store.find_group(after.needs, user_id, tenants), after)
        except NotFound:
            return None

    async def _choose(
        self, spec: JobSpec, options: SubmissionOptions, *, spot_by_default: bool
    ) -> Choice:
        """BadInput if no cluster has what it asks for, or its tenant may never have it."""
        settings = self._settings.current
        clusters = settings.clusters
        blocks = await self.blocks.now() if self.blocks is not None else ()
        try:
            choice = self._choices.choose(
                spec, clusters, blocks, self._clock.now(), spot_by_default=spot_by_default
            )
        except BadInput:
            later = choose_for_later(spec, clusters) if options.waits_for_size else None
            if later is None:
                raise
            choice = later
        if self._door is not None:
            await self._door.check(spec, settings.by_name[choice.cluster])
        return choice

    def _accepted(self, spec: JobSpec, choice: Choice, job: Job) -> Accepted:
        """`job`: the first one of the submission, as it is stored."""
        count = len(parse_array(spec.array) or ()) if spec.array is not None else 1
        what = f"{count} jobs queued" if spec.array is not None else "queued"
        if spec.elastic:
            what += f" to run on {spec.least} to {spec.replicas} VMs"
        elif spec.replicas > 1:
            what += f" as a gang of {spec.replicas} VMs"
        message = f"{what} for cluster {choice.cluster}{_machine(choice.quote)}: {choice.reason}"
        if choice.quote is not None and choice.quote.spot and spec.deadline is not None:
            message += self._way_out(job)
        if spec.after:
            message += f"; {dependency_words(spec.after)}"
        bound_s = None
        if self._door is not None and job.starts_by is not None:
            bound_s = (job.starts_by - job.submitted_at).total_seconds()
        return Accepted(
            job_id=spec.job_id,
            user_id=spec.user_id,
            cluster=choice.cluster,
            message=message,
            starvation_bound_s=bound_s,
            jobs=count,
            quote=choice.quote,
            tenant_id=spec.tenant_id,
        )

    def _way_out(self, job: Job) -> str:
        """What a spot job with a deadline may cost in the end."""
        clusters = self._settings.current.clusters
        here = next((c for c in clusters if c.name == job.cluster), None)
        standard = standard_cluster(job.spec, here, clusters) if here is not None else None
        if standard is None:
            return ""
        words = quote_of(job.spec, standard).words()
        return f"; as its deadline comes near it may move to {standard.name} ({words})"

    async def _stored(self, spec: JobSpec) -> str | None:
        """The content hash of the job that has the id of its first one already."""
        key = JobKey(spec.tenant_id, spec.user_id, first_job_id(spec))
        known = await self._store.content_hash(key)
        return None if known is None else known[1]

    async def _answer_again(
        self, spec: JobSpec, digest: str, stored_digest: str, choice: Choice | None
    ) -> Accepted:
        """The first answer once more, or Conflict if the first submission was another one."""
        if stored_digest != digest:
            raise Conflict(
                f"job {spec.job_id} of user {spec.user_id} exists with other content: "
                f"take another job_id, or submit exactly the same again"
            )
        tenants = only_tenant(spec.tenant_id)
        job = await self._store.find_job(first_job_id(spec), spec.user_id, tenants)
        if choice is None or choice.cluster != job.cluster:
            found = self._settings.current.by_name.get(job.cluster)
            quote = quote_of(job.spec, found) if found is not None else None
            words = f": {quote.words()}" if quote is not None else ""
            choice = Choice(job.cluster, f"chosen when first submitted{words}", quote)
        return replace(self._accepted(spec, choice, job), repeated=True)


def _machine(quote: Quote | None) -> str:
    if quote is None:
        return ""
    return f" ({quote.machine_type}, {'spot' if quote.spot else 'standard'} VMs)"


class JobNotStored(ZenError):
    """The store refused a job that nobody had submitted before: a fault of ours."""

    code = "not_stored"


class _FreshIdTaken(Conflict):
    """Dice fell the same way twice: throw again."""


def _owned(values: Values, by: Submitter) -> Values:
    """The submission as the submitter's."""
    named = Owner(values.get("tenant_id", DEFAULT_TENANT), values.get("user_id", NOBODY))
    return {**values, **by.claim(named)._asdict()}


def _brings_id(data: object) -> bool:
    return isinstance(data, Mapping) and data.get("job_id") is not None
