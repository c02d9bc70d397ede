"""An event loop in virtual time: when nothing is ready, the clock jumps to the next timer.

Every callback belongs to a *process* (or to the world itself). A killed process's callbacks are
dropped, without any `finally`, as SIGKILL would; a frozen one's are kept until it thaws, as
SIGSTOP would. The order of callbacks depends on nothing but the program, so a seed repeats.
"""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")
ROUNDS_MAX = 20_000
EPOCH = datetime(2026, 1, 5, 6, 0, tzinfo=UTC)
_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Stalled(Exception):
    """Time does not pass any more: nothing is left to happen, or something spins."""


class ScheduledCall:
    """A callback that is due some time. `asyncio.Handle` does more than this loop asks for, and a
    run makes hundreds of thousands of them."""

    __slots__ = ("args", "callback", "context", "off", "owner")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        owner: Process | None,
    ) -> None:
        self.callback, self.args, self.context, self.owner = callback, args, context, owner
        self.off = False

    def cancel(self) -> None:
        self.off = True
        self.callback, self.args = _nothing, ()  # what they hold on to may go

    def cancelled(self) -> bool:
        return self.off


def _nothing() -> None:
    """What a cancelled call does."""


class Process:
    """What dies and freezes together: a replica, or the agent on a VM."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.frozen_at = 0.0
        self.parked: list[ScheduledCall] = []
        """What was due while it was frozen."""
        self._loop = loop
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._kept: list[asyncio.Task[Any]] = []
        self._context = loop.root.copy()
        self._context.run(_PROCESS.set, self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that lives and dies with this process."""
        return self._loop.create_task(work, context=self._context.copy())

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def kill(self) -> None:
        """SIGKILL. Its tasks are kept, or the garbage collector would run their `finally`s: also
        those of a frozen process that have not begun, which only what is parked holds on to."""
        self.dead = True
        self._kept = [task for task in self._tasks if not task.done()]
        self.parked.clear()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen, self.frozen_at = True, self._loop.time()

    def thaw(self) -> None:
        """SIGCONT: everything that was due meanwhile happens now, in order."""
        self.frozen = False
        parked, self.parked = self.parked, []
        self._loop.ready.extend(parked)

    def dispose(self) -> None:
        """The world is over: end what was killed, quietly."""
        for task in [*self._kept, *self._tasks]:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                with suppress(BaseException):
                    task.get_coro().close()


class VirtualLoop(asyncio.BaseEventLoop):
    """No network, no threads, no waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = 0.0
        self._rounds = 0
        self._numbers = count()
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        """A heap; what is due at the same moment comes in the order in which it was asked for."""
        self.ready: deque[ScheduledCall] = deque()
        self.root = contextvars.copy_context()
        self.processes: list[Process] = []
        self.set_task_factory(_make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._moment

    def process(self, name: str) -> Process:
        """A new process; nothing runs in it yet."""
        made = Process(self, name)
        self.processes.append(made)
        return made

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None:
        """For the world itself: happens whatever dies meanwhile."""
        self.call_at(self._moment + delay_s, callback, *arguments, context=self.root.copy())

    def dispose(self) -> None:
        """Close, and silence what was killed on the way."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that died unawaited
            for process in self.processes:
                process.dispose()
        self.ready.clear()
        self._timers.clear()
        self.close()

    # --- how callbacks get their process ---------------------------------------------------

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        context = contextvars.copy_context() if context is None else context
        call = ScheduledCall(callback, args, context, context.get(_PROCESS))
        self.ready.append(call)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]
    """There is one thread. Python asks for this when it finishes an abandoned generator."""

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        context = contextvars.copy_context() if context is None else context
        call = ScheduledCall(callback, args, context, context.get(_PROCESS))
        heappush(self._timers, (when, next(self._numbers), call))
        return call

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        return self.call_at(self._moment + delay, callback, *args, context=context)

    # --- turning -----------------------------------------------------------------------------

    def _run_once(self) -> None:
        """What is ready now; if nothing is, the clock jumps to the next timer first."""
        ready, timers = self.ready, self._timers
        while timers and timers[0][2].off:
            heappop(timers)
        self._rounds += 1
        if not ready:
            if not timers:
                raise Stalled("nothing is ready and no timer is set")
            if timers[0][0] > self._moment:
                self._moment, self._rounds = timers[0][0], 0
        if self._rounds > ROUNDS_MAX:
            raise Stalled(f"{ROUNDS_MAX} rounds of callbacks and the clock has not moved")
        while timers and timers[0][0] <= self._moment:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            call = ready.popleft()
            owner = call.owner
            if call.off or (owner is not None and owner.dead):
                continue
            if owner is not None and owner.frozen:
                owner.parked.append(call)
                continue
            try:
                call.context.run(call.callback, *call.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # as asyncio does: tell the handler
                self._tell_handler(call, error)

    def _tell_handler(self, call: ScheduledCall, error: BaseException) -> None:
        about = {"message": f"exception in callback {call.callback!r}", "exception": error}
        self.call_exception_handler(about)


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **extra: Any
) -> asyncio.Task[T]:
    task = asyncio.Task(work, loop=loop, **extra)
    context: Mapping[Any, Any] | None = extra.get("context")
    owner = _PROCESS.get() if context is None else context.get(_PROCESS)
    if owner is not None:
        owner.adopt(task)
    return task


class VirtualClock:
    """One machine's clock. Wall time may be wrong and jump; the monotonic clock only counts."""

    def __init__(self, loop: VirtualLoop, ahead_s: float = 0.0, counted_s: float = 0.0) -> None:
        self._loop = loop
        self.ahead_s = ahead_s
        self._counted_s = counted_s

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time() + self.ahead_s)

    def monotonic(self) -> float:
        return self._loop.time() + self._counted_s
