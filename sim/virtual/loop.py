"""An event loop in virtual time: when nothing is ready, the clock jumps to the next timer.

Every callback belongs to a *process* (or to the world itself). A killed process's callbacks are
dropped, without any `finally`, as SIGKILL would; a frozen one's are kept until it thaws, as
SIGSTOP would. The order of callbacks depends on nothing but the program, so a seed repeats.
"""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")
ROUNDS_MAX = 20_000
EPOCH = datetime(2026, 1, 5, 6, 0, tzinfo=UTC)
_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Stalled(Exception):
    """Time does not pass any more: nothing is left to happen, or something spins."""


class Process:
    """What dies and freezes together: a replica, or the agent on a VM."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.frozen_at = 0.0
        self._loop = loop
        self._parked: list[tuple[Callable[..., object], tuple[Any, ...], Any]] = []
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
        """SIGKILL. Its tasks are kept, or the garbage collector would run their `finally`s."""
        self.dead = True
        self._parked.clear()
        self._kept = list(self._tasks)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen, self.frozen_at = True, self._loop.time()

    def thaw(self) -> None:
        """SIGCONT: everything that was due meanwhile happens now, in order."""
        self.frozen = False
        parked, self._parked = self._parked, []
        for callback, arguments, context in parked:
            self._loop.call_soon(callback, *arguments, context=context)

    def run(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """Called for each of its callbacks."""
        if self.dead:
            return
        if self.frozen:
            self._parked.append((callback, arguments, contextvars.copy_context()))
            return
        callback(*arguments)

    def dispose(self) -> None:
        """The world is over: end what was killed, quietly."""
        for task in [*self._kept, *self._tasks]:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                with suppress(BaseException):
                    task.get_coro().close()


class _Jump:
    """Stands where the selector would: instead of waiting, the clock is moved."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._rounds = 0

    def select(self, timeout_s: float | None) -> list[object]:
        if timeout_s is None:
            raise Stalled("nothing is ready and no timer is set")
        self._rounds += 1
        if timeout_s > 0:
            self._rounds = 0
            self._loop.jump(timeout_s)
        if self._rounds > ROUNDS_MAX:
            raise Stalled(f"{ROUNDS_MAX} rounds of callbacks and the clock has not moved")
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """No sockets, no threads, no waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = 0.0
        self._selector = _Jump(self)
        self._clock_resolution = 1e-9
        self.root = contextvars.copy_context()
        self.processes: list[Process] = []
        self.set_task_factory(_make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._moment

    def jump(self, seconds: float) -> None:
        self._moment += seconds

    def process(self, name: str) -> Process:
        """A new process; nothing runs in it yet."""
        made = Process(self, name)
        self.processes.append(made)
        return made

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None:
        """For the world itself: happens whoever dies meanwhile."""
        context = self.root.copy()
        super().call_at(self._moment + delay_s, callback, *arguments, context=context)

    def dispose(self) -> None:
        """Close, and silence what was killed on the way."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that died unawaited
            for process in self.processes:
                process.dispose()
        self.close()

    # --- how callbacks get their process ---------------------------------------------------

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        owner = _PROCESS.get() if context is None else context.get(_PROCESS)
        if owner is None:
            return super().call_soon(callback, *args, context=context)
        if owner.dead:
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon(owner.run, callback, args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        owner = _PROCESS.get() if context is None else context.get(_PROCESS)
        if owner is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, owner.run, callback, args, context=context)

    # --- what a loop over sockets would do -------------------------------------------------

    def _process_events(self, event_list: list[object]) -> None:
        assert not event_list, "there are no sockets here"

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **extra: Any
) -> asyncio.Task[T]:
    task = asyncio.Task(work, loop=loop, **extra)
    context: Mapping[Any, Any] | None = extra.get("context")
    owner = _PROCESS.get() if context is None else context.get(_PROCESS)
    if owner is not None:
        owner.adopt(task)
    return task


def this_process() -> Process | None:
    """The process whose callback runs now."""
    return _PROCESS.get()


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
