"""How a call to Compute is made: within the budget, in a thread, repeated while that is allowed.

The library has no asynchronous client, so calls run in threads. Retries live here and nowhere
above: a read may be repeated, a write only under the same request id, which Google recognises.
Whatever is still unsure after that is said to be so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_exponential_jitter

from core.errors import CloudBusy, CloudUnsure, ZenError
from core.ports import Clock
from migs.errors import TRANSLATED, translate
from migs.library import ComputeClients, ComputeLibrary
from migs.rate_limit import CallBudget

CALL_S = 20.0
"""One call with all its repeats; a leader that waits longer may no longer be one."""
ATTEMPTS = 3
THREADS_PER_REGION = 4
"""A region that does not answer holds its own threads and nobody else's."""
THREADS = 40 * THREADS_PER_REGION
"""As many regions as Google has; a thread exists only once it was needed."""

T = TypeVar("T")
Call = Callable[[ComputeClients, float], T]
"""Runs in a thread: (clients, time-out) → answer."""


def call_of(client: str, method: str, request: Mapping[str, object]) -> Call[Any]:
    """A call of one of Google's clients, by the names of ComputeClients."""

    def call(clients: ComputeClients, timeout_s: float) -> Any:
        ask = getattr(getattr(clients, client), method)
        return ask(request=request, timeout=timeout_s, retry=None)

    return call


@dataclass(frozen=True, slots=True)
class About:
    """Whom a call is for, which decides its place in the row and what its failure means."""

    mig: str
    region: str
    write: bool = False
    urgent: bool = False


class Caller:
    """Makes the calls of one project. Belongs to one event loop."""

    def __init__(
        self,
        library: ComputeLibrary,
        clock: Clock,
        *,
        calls_per_minute: int,
        call_s: float = CALL_S,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._library = library
        self._clock = clock
        self._budget = CallBudget(calls_per_minute, clock)
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="compute")
        self._free: dict[str, asyncio.Semaphore] = {}
        self._call_s = call_s
        self._attempts = attempts

    def close(self) -> None:
        """No more calls. Those under way end by their own time-out."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def free(self, region: str) -> asyncio.Semaphore:
        """The threads that a region may have at once."""
        return self._free.setdefault(region, asyncio.Semaphore(THREADS_PER_REGION))

    async def repeated(self, call: Call[T], about: About) -> T:
        """The call, repeated while that is allowed and there is time."""
        clients = await self._library.clients()
        ends_at = self._clock.monotonic() + self._call_s
        unsure = False

        def may_repeat(error: BaseException) -> bool:
            nonlocal unsure
            unsure = unsure or isinstance(error, CloudUnsure)
            again = isinstance(error, CloudBusy | CloudUnsure)
            return again and self._clock.monotonic() < ends_at

        repeats = AsyncRetrying(
            stop=stop_after_attempt(self._attempts),
            wait=wait_exponential_jitter(multiplier=0.1, max=2.0, jitter=0.1),
            retry=retry_if_exception(may_repeat),
            reraise=True,
        )
        try:
            return await repeats(self._once, call, clients, ends_at, about)
        except ZenError as error:
            if unsure and not isinstance(error, CloudUnsure):
                # An earlier try may have got through; its repeat's refusal does not undo it.
                raise CloudUnsure(f"an answer was lost, then: {error}") from error
            raise

    async def _once(
        self, call: Call[T], clients: ComputeClients, ends_at: float, about: About
    ) -> T:
        left_s = max(0.01, ends_at - self._clock.monotonic())
        sent = False
        try:
            async with asyncio.timeout(left_s):
                await self.free(about.region).acquire()
                answer = await self._send(call, clients, ends_at, about)
                sent = True
                # Shielded: a thread cannot be stopped, and it keeps its place until it ends.
                return await asyncio.shield(answer)
        except TRANSLATED as exc:
            raise translate(exc, write=about.write and sent, what=about.mig) from exc

    async def _send(
        self, call: Call[T], clients: ComputeClients, ends_at: float, about: About
    ) -> asyncio.Future[T]:
        """The answer to come. The region's thread is in our hands and is given back with it; the
        place in the budget is taken last, so that a region without a thread spends none."""
        free = self.free(about.region)
        try:
            left_s = max(0.01, ends_at - self._clock.monotonic())
            await self._budget.take(left_s, about.mig, urgent=about.urgent)
            left_s = max(0.01, ends_at - self._clock.monotonic())
            loop = asyncio.get_running_loop()
            answer = loop.run_in_executor(self._threads, call, clients, left_s)
        except BaseException:
            free.release()
            raise

        def ended(done: asyncio.Future[Any]) -> None:
            free.release()
            if not done.cancelled():
                done.exception()  # looked at, for answers nobody waits for any more

        answer.add_done_callback(ended)
        return answer
