"""Runs jobs: one shim per job, its socket, its log, its status file, its outputs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.checkpoint_sync import CheckpointSync, restored, sync_for
from agent.code_cache import CodeCache, NoCode
from agent.containers.spec import Runtime
from agent.environment import INSIDE, AttemptDirectories, places_for, write_size
from agent.events import Exited, Input, Progressed, Signal, Started, StartFailed
from agent.held_directory import HeldDirectory
from agent.logs import carry_log
from agent.meta_file import MetaFile
from agent.outputs import OutputDirectory, judge, store_outputs
from agent.runtimes import CannotStart, Containers, JobRuntime, Processes
from agent.sandbox.isolation import INSIDE_JOB, Isolation
from agent.shims import ShimLink, Shims
from agent.status_file import StatusTail
from agent.store_tokens import store_for
from agent.token_endpoint import TokenEndpoint, endpoint_for
from core.errors import ZenError
from core.job_tokens import TokenKind, Tokens
from core.messages import Size, StartJob
from stores.artifacts import ArtifactPath, Manifest
from stores.base import FileStore, LogPath

STATUS_EVERY_S = 0.5
LOG_WAIT_S = 10.0
"""How long an exit waits for the rest of the log: a reader that sees the end should see its log."""
CLOSE_WAIT_S = 5.0
LEFTOVERS_S = 60.0
LEFTOVERS_TOLD_S = 10.0
"""Of a job that was told to end: somebody waits for its VM."""


@dataclass(slots=True)
class _Kept:
    """A job and its shim."""

    order: StartJob
    places: AttemptDirectories
    kind: JobRuntime
    store: FileStore
    """With the attempt's own token where it has one, never with the VM's account then."""
    orders: list[bytes] = field(default_factory=list)
    """Signals that came before the shim did."""
    shim: ShimLink | None = None
    pid: int = 0
    """The job's first process, which leads its process group; 0 for a container."""
    task: asyncio.Task[None] | None = None
    told_to_end: bool = False
    saving: asyncio.Task[Manifest | None] | None = None
    """Its outputs are on their way to the store."""
    placing: asyncio.Task[None] | None = None
    """Its code is on its way to its directory."""
    base: HeldDirectory | None = None
    """Its directory, held since before the job ran: what it puts there later is not followed."""
    tail: StatusTail | None = None
    sync: CheckpointSync | None = None
    """Keeps its checkpoints; None: they lie in the store."""
    restoring: asyncio.Task[str] | None = None
    endpoint: TokenEndpoint | None = None
    """Where it finds tokens of its tenant's account."""


class JobRunner:
    """Answers through `post`: Started or StartFailed, then Exited, with Progressed in between."""

    def __init__(
        self,
        vm_dir: Path,
        store: FileStore,
        post: Callable[[Input], None],
        shims: Shims,
        *,
        isolation: Isolation | None = None,
        environment: Mapping[str, str] | None = None,
        runtime: Runtime,
    ) -> None:
        self._vm_dir, self._store, self._post = vm_dir, store, post
        self._shims, self._journal = shims, shims.journal
        self._isolation = isolation or Isolation()
        self._sandbox = self._isolation.rules
        ours = os.environ if environment is None else environment
        self._processes = Processes(ours, self._isolation)
        self._containers = Containers(runtime, self._isolation)
        self._code = CodeCache(vm_dir / "code", self._sandbox.code_cache_max)
        self._jobs: dict[str, _Kept] = {}
        self._tokens: dict[str, Tokens] = {}
        """By lease, for as long as the attempt is here."""
        self._until: float | None = None

    def start(self, order: StartJob) -> None:
        """Begin to run it."""
        kind = self._containers if order.spec.image else self._processes
        place = self._isolation.open_place
        store = store_for(order, self._store, self._tokens)
        kept = _Kept(order, places_for(order, self._vm_dir, store, place), kind, store)
        directory = kept.places.checkpoints
        kept.sync = sync_for(order, store, directory, self._sandbox, self._checkpoint_safe(order))
        self._jobs[order.lease_id] = kept
        kept.task = asyncio.create_task(self._run(kept), name=f"job {order.lease_id}")

    def signal(self, lease_id: str, name: Signal) -> None:
        """Tell the job's processes; nothing if they are gone."""
        kept = self._jobs.get(lease_id)
        if kept is None:
            return
        kept.told_to_end |= name in (Signal.TERM, Signal.KILL)
        if kept.saving is not None and name is Signal.KILL:
            kept.saving.cancel()
        if kept.restoring is not None and kept.told_to_end:
            kept.restoring.cancel()
        if kept.sync is not None and name in (Signal.STOP, Signal.CONT):
            kept.sync.frozen = name is Signal.STOP
        if kept.placing is not None and kept.told_to_end:
            kept.placing.cancel()
        _tell(kept, f"{name}\n".encode())

    def resize(self, lease_id: str, size: Size) -> None:
        """Who else is there now: for the job to read, and a signal that there is news."""
        kept = self._jobs.get(lease_id)
        if kept is None:
            return
        kept.order = replace(kept.order, size=size, world_size=len(size.members))
        try:
            write_size(kept.order, size, kept.places)
        except OSError as error:
            self._journal.error("size not written", lease_id=lease_id, reason=str(error))
            return
        if kept.order.spec.resize_signal != "none":
            _tell(kept, f"{kept.order.spec.resize_signal}\n".encode())

    def give(self, lease_id: str, tokens: Tokens) -> None:
        """From now on it uses these."""
        if lease_id in self._jobs:
            self._tokens[lease_id] = {**self._tokens.get(lease_id, {}), **tokens}

    def renew(self, until: float) -> None:
        """Jobs may compute until then, even if we hang: their shims watch the same clock."""
        self._until = until
        for kept in self._jobs.values():
            _tell(kept, f"UNTIL {until}\n".encode())

    async def close(self) -> None:
        """Closing the sockets is what kills: a shim whose agent is gone ends its job."""
        tasks = [kept.task for kept in self._jobs.values() if kept.task is not None]
        for kept in self._jobs.values():
            if kept.shim is not None:
                kept.shim.hang_up()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_WAIT_S)
            for task in late:
                task.cancel()
        self._shims.close()

    async def _run(self, kept: _Kept) -> None:
        lease_id = kept.order.lease_id
        try:
            ended: Input = await self._keep(kept)
            if isinstance(ended, Exited) and kept.base is not None:
                ended = await self._save(kept, ended)
        except OSError as error:
            self._journal.error("job could not be kept", lease_id=lease_id, reason=str(error))
            ended = StartFailed(lease_id, 126, f"the VM could not start it: {error}")
        finally:
            del self._jobs[lease_id]
            self._tokens.pop(lease_id, None)
            kept.kind.ended(kept.order)
            if kept.base is not None:
                kept.base.close()
            if kept.endpoint is not None:
                kept.endpoint.close()
            if kept.sync is not None:
                kept.sync.close()
        self._post(ended)
        await asyncio.to_thread(_remove, kept.places.base)

    async def _keep(self, kept: _Kept) -> Input:
        order = kept.order
        if missing := order.spec.secrets.keys() - order.secret_values.keys():
            words = f"its start message has no values for {', '.join(sorted(missing))}"
            return StartFailed(order.lease_id, 126, words)
        if order.spec.google_token:
            if TokenKind.GOOGLE not in order.tokens:
                words = "its start message has no token of its tenant's account"
                return StartFailed(order.lease_id, 126, words)
            uid = self._isolation.user_for(order)
            kept.endpoint = await endpoint_for(order, uid, self._tokens)
            order = kept.endpoint.told_to(order)
        if order.spec.code and (why := await self._place_code(kept)) is not None:
            return why
        if order.size is not None:
            write_size(order, order.size, kept.places)
        if kept.sync is not None and (ended := await self._restore(kept, kept.sync)) is not None:
            return ended
        # The shim starts while its order is made.
        async with self._shims.link(kept.kind.shim) as shim:
            try:
                brief = await kept.kind.brief(order, kept.places)
            except CannotStart as error:
                return StartFailed(order.lease_id, error.exit_code, error.reason)
            kept.base = HeldDirectory.of(kept.places.base)
            if (pid := await shim.begun()) is not None:
                await kept.kind.adopt(order, pid)
            log = asyncio.create_task(self._carry(kept, shim.output))
            try:
                first = json.dumps({**brief, "until": self._until}).encode()
                shim.tell(first + b"\n", *kept.orders)
                kept.shim = shim
                ended = await self._follow(kept, shim)
                await asyncio.wait([log], timeout=LOG_WAIT_S)
                return ended
            finally:
                log.cancel()

    def _checkpoint_safe(self, order: StartJob) -> Callable[[float], None]:
        return lambda step: self._post(Progressed(order.lease_id, None, step))

    async def _restore(self, kept: _Kept, sync: CheckpointSync) -> Input | None:
        """None: its checkpoint is there, if it has one."""
        lease_id = kept.order.lease_id
        kept.restoring = task = asyncio.create_task(restored(sync))
        await asyncio.wait([task])
        kept.restoring = None
        if task.cancelled():
            return Exited(lease_id, 128 + signal.SIGTERM, "it was stopped before it began")
        if (error := task.exception()) is not None:
            return Exited(lease_id, None, f"its checkpoint could not be restored: {error}")
        if note := task.result():
            await self._add_to_log(kept, note)
        return None

    async def _place_code(self, kept: _Kept) -> StartFailed | None:
        """The directory that it starts in; why not, if it cannot be had."""
        spec, lease_id = kept.order.spec, kept.order.lease_id
        # Nobody else's while it is filled: its runtime opens it to the job.
        kept.places.base.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self._code.place(spec.tenant_id, spec.code, kept.store, kept.places.work)
        kept.placing = asyncio.create_task(place)
        try:
            await asyncio.wait([kept.placing])
            if kept.placing.cancelled():
                return StartFailed(lease_id, 128 + signal.SIGTERM, "it had not begun")
            kept.placing.result()
        except NoCode as error:
            return StartFailed(lease_id, None, str(error))
        finally:
            kept.placing = None
        return None

    async def _save(self, kept: _Kept, ended: Exited) -> Exited:
        """Its outputs first: a client that hears of the end can fetch them. What a job leaves that
        failed or was ended is worth a moment, no more."""
        good = ended.exit_code == 0
        wait_s = LEFTOVERS_TOLD_S if kept.told_to_end else LEFTOVERS_S
        path = self._artifacts(kept.order)
        assert kept.base is not None, "it ran"
        if kept.sync is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await kept.sync.finish(by_itself=not ended.killed)
            if kept.sync.note:
                await self._add_to_log(kept, kept.sync.note)
        names = [str(directories.outputs) for directories in (kept.places, INSIDE, INSIDE_JOB)]
        outputs = OutputDirectory(kept.base, names, self._sandbox.outputs_max)
        kept.saving = asyncio.create_task(store_outputs(kept.store, path, outputs))
        await asyncio.wait([kept.saving], timeout=None if good else wait_s)
        kept.saving.cancel()
        verdict, note = judge(kept.saving, ended)
        for words in filter(None, (kept.tail.note if kept.tail else "", note)):
            self._journal.warning("outputs", lease_id=ended.lease_id, note=words)
            await self._add_to_log(kept, words)
        return verdict

    async def _add_to_log(self, kept: _Kept, note: str) -> None:
        try:
            async with kept.store.writer(self._log_path(kept.order)) as writer:
                await writer.write(f"[zen: {note}]\n".encode(errors="replace"))
        except ZenError as error:
            self._journal.error("log lost", lease_id=kept.order.lease_id, reason=str(error))

    def _artifacts(self, order: StartJob) -> ArtifactPath:
        spec = order.spec
        return ArtifactPath(spec.tenant_id, spec.user_id, spec.job_id, order.attempt)

    def _log_path(self, order: StartJob) -> LogPath:
        spec = order.spec
        return LogPath(spec.tenant_id, spec.user_id, spec.job_id, order.attempt)

    async def _carry(self, kept: _Kept, output: asyncio.StreamReader) -> None:
        path = self._log_path(kept.order)
        await carry_log(output, kept.store, path, self._sandbox.log_max, self._journal)

    async def _follow(self, kept: _Kept, shim: ShimLink) -> Input:
        lease_id = kept.order.lease_id
        first = await shim.words()
        if "pid" in first:
            kept.pid = int(str(first["pid"]))
            first = await shim.words()
        if "failed" in first:
            return kept.kind.not_started(kept.order, first)
        if "signal" in first or "lost" in first:
            return _exited(kept.order, first)
        if "started" in first:
            self._post(Started(lease_id))
        assert kept.base is not None, "it was made before"
        kept.tail = tail = StatusTail(kept.base, bytes_max=self._sandbox.status_max)
        meta = MetaFile(kept.store, self._artifacts(kept.order), kept.base)
        following = [
            asyncio.create_task(self._follow_status(kept, tail)),
            asyncio.create_task(meta.follow()),
        ]
        if kept.sync is not None:
            following.append(asyncio.create_task(kept.sync.follow()))
        last = await shim.words()
        for task in following:
            task.cancel()
        self._look(kept, tail)
        if not last:
            await kept.kind.abandon(kept.order, kept.pid)
        killed_by = kept.kind.ended(kept.order)
        return _exited(kept.order, {**last, "note": last.get("note") or killed_by})

    async def _follow_status(self, kept: _Kept, tail: StatusTail) -> None:
        while True:
            await asyncio.sleep(STATUS_EVERY_S)
            self._look(kept, tail)

    def _look(self, kept: _Kept, tail: StatusTail) -> None:
        status = tail.look()
        step = status.checkpoint_step
        if kept.sync is not None and step is not None:
            kept.sync.announce(step)  # it counts when it is safe
            step = None
        if status.progress is not None or step is not None:
            self._post(Progressed(kept.order.lease_id, status.progress, step))


def _remove(directory: Path) -> None:
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except RecursionError:  # deeper than Python goes; rm has no such bound
        subprocess.run(["rm", "-rf", "--", str(directory)], check=False, stderr=subprocess.DEVNULL)


def _tell(kept: _Kept, line: bytes) -> None:
    if kept.shim is None:
        kept.orders.append(line)
    else:
        kept.shim.tell(line)


_SHELL_SAYS: Mapping[int, str] = {
    126: ": the shell could not run a command, its log names it",
    127: ": the shell did not find a command, its log names it",
}
"""What a shell means by these codes: without it the reason would be a number alone."""


def _exited(order: StartJob, end: Mapping[str, object]) -> Exited:
    lease_id = order.lease_id
    note = f": {end['note']}" if end.get("note") else ""
    if isinstance(code := end.get("exit"), int):
        if order.spec.shell and not note:
            note = _SHELL_SAYS.get(code, "")
        return Exited(lease_id, code, f"exit code {code}{note}")
    if isinstance(number := end.get("signal"), int):
        words = f"killed by {_signal_name(number)}{note}"
        return Exited(lease_id, 128 + number, words, killed=True)
    if "lost" in end:
        return Exited(lease_id, None, str(end["lost"]), killed=True)
    words = "the process that kept the job was killed"
    return Exited(lease_id, 128 + signal.SIGKILL, words, killed=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # real-time signals have no name
