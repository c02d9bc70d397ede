"""The Compute port over google-cloud-compute.

The library has no asynchronous client, so calls run in a few threads. Retries live here and
nowhere above: a read may be repeated, a write only under the same request id, which Google
recognises. Whatever is still unsure after that is said to be so.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_exponential_jitter

from core.capacity import Create, Delete, Member, MigSnapshot
from core.errors import CloudBusy, CloudRefused, CloudUnsure, ZenError
from core.ports import Clock
from migs.budget import CallBudget
from migs.errors import TRANSLATED, translate
from migs.library import Library
from migs.reading import LEAVING, group_faults, read_member, zone_of

CALL_S = 20.0
"""One call with all its repeats; a leader that waits longer may no longer be one."""
ATTEMPTS = 3
THREADS = 8
NAMES_PER_CALL = 1000
PAGE = 500
PAGES_MAX = 40
"""20,000 members, ten times what Google lets a group have."""

T = TypeVar("T")
Call = Callable[[Any, float], T]
"""Runs in a thread: (client, time-out) → answer."""


class GoogleCompute:
    """core.ports.Compute for one project. Belongs to one event loop."""

    def __init__(
        self,
        project: str,
        *,
        endpoint: str | None,
        clock: Clock,
        calls_per_minute: int,
        call_s: float = CALL_S,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._project = project
        self._clock = clock
        self._budget = CallBudget(calls_per_minute, clock)
        self._library = Library(endpoint)
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="compute")
        self._free = asyncio.Semaphore(THREADS)
        self._call_s = call_s
        self._attempts = attempts

    def warm_up(self) -> None:
        """Start loading the library in the background; calls wait for it."""
        self._library.start()

    async def close(self) -> None:
        """No more calls. Those under way end by their own time-out."""
        self._library.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- the port -----------------------------------------------------------------------

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        """The group and all its members."""
        # The time before the question: what happens while it travels is not in the answer.
        asked_at = self._clock.now()
        group = await self._get(mig, region)
        members = await self._members(mig, region)
        return MigSnapshot(
            mig=mig,
            cluster=cluster,
            region=region,
            target_size=group.target_size,
            stable=group.status.is_stable,
            members=tuple(members),
            observed_at=asked_at,
            faults=tuple(str(fault) for fault in group_faults(group)),
        )

    async def create(self, mig: str, action: Create) -> None:
        """Adds members by name."""
        requests = [
            {
                **self._group(mig, action.region),
                "request_id": request_id,
                "region_instance_group_managers_create_instances_request_resource": {
                    "instances": [{"name": name} for name in names]
                },
            }
            for request_id, names in _portions(action)
        ]
        await self._write(mig, "create_instances_unary", requests)

    async def delete(self, mig: str, action: Delete) -> None:
        """Removes exactly these members. Their zones are asked for first: a member may have
        moved since it was last seen, and a URL with the wrong zone is skipped in silence."""
        listed = {m.name: m for m in await self._members(mig, action.region)}
        requests = []
        for request_id, names in _portions(action):
            found = [listed[name] for name in names if name in listed]
            staying = [member for member in found if member.action not in LEAVING]
            if staying:
                body = {
                    "instances": await self._urls(mig, action.region, staying),
                    "skip_instances_on_validation_error": True,
                }
                key = "region_instance_group_managers_delete_instances_request_resource"
                group = self._group(mig, action.region)
                requests.append({**group, "request_id": request_id, key: body})
        await self._write(mig, "delete_instances_unary", requests)

    # --- calls --------------------------------------------------------------------------

    def _group(self, mig: str, region: str) -> dict[str, object]:
        return {"project": self._project, "region": region, "instance_group_manager": mig}

    async def _get(self, mig: str, region: str) -> Any:
        request = self._group(mig, region)

        def call(client: Any, timeout_s: float) -> Any:
            return client.get(request=request, timeout=timeout_s, retry=None)

        return await self._repeated(call, write=False, what=mig)

    async def _members(self, mig: str, region: str) -> list[Member]:
        members: list[Member] = []
        token = ""
        for _ in range(PAGES_MAX):
            request = {**self._group(mig, region), "max_results": PAGE, "page_token": token}
            page, token = await self._repeated(_page_call(request), write=False, what=mig)
            members += page
            if not token:
                return members
        raise CloudRefused(f"{mig} in {region} lists more than {PAGES_MAX * PAGE} members")

    async def _urls(self, mig: str, region: str, members: list[Member]) -> list[str]:
        """A member that Google has not given a zone yet is named in the group's first one: only
        the zone of a VM that exists binds, and a wrong guess is skipped, then seen again."""
        guess = ""
        if any(not member.zone for member in members):
            group = await self._get(mig, region)
            guess = next((zone_of(z.zone) for z in group.distribution_policy.zones), f"{region}-a")
        return [f"zones/{member.zone or guess}/instances/{member.name}" for member in members]

    async def _write(self, mig: str, method: str, requests: list[dict[str, object]]) -> None:
        """The calls of one action, in order."""
        for index, request in enumerate(requests):
            try:
                await self._repeated(_write_call(method, request), write=True, what=mig)
            except ZenError as error:
                if index and not isinstance(error, CloudUnsure):
                    raise CloudUnsure(f"part of it was accepted, then: {error}") from error
                raise

    async def _repeated(self, call: Call[T], *, write: bool, what: str) -> T:
        """The call, repeated while that is allowed and there is time."""
        client = await self._library.client()
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
            return await repeats(self._once, call, client, ends_at, write, what)
        except ZenError as error:
            if unsure and not isinstance(error, CloudUnsure):
                # An earlier try may have got through; its repeat's refusal does not undo it.
                raise CloudUnsure(f"an answer was lost, then: {error}") from error
            raise

    async def _once(self, call: Call[T], client: Any, ends_at: float, write: bool, what: str) -> T:
        left_s = max(0.01, ends_at - self._clock.monotonic())
        sent = False
        try:
            async with asyncio.timeout(left_s):
                await self._budget.take(left_s)
                await self._free.acquire()
                left_s = max(0.01, ends_at - self._clock.monotonic())
                loop = asyncio.get_running_loop()
                answer = loop.run_in_executor(self._threads, call, client, left_s)
                answer.add_done_callback(self._thread_is_free)
                sent = True
                # Shielded: a thread cannot be stopped, and it keeps its place until it ends.
                return await asyncio.shield(answer)
        except TRANSLATED as exc:
            raise translate(exc, write=write and sent, what=what) from exc

    def _thread_is_free(self, answer: asyncio.Future[Any]) -> None:
        self._free.release()
        if not answer.cancelled():
            answer.exception()  # looked at, for answers nobody waits for any more


def _write_call(method: str, request: dict[str, object]) -> Call[None]:
    def call(client: Any, timeout_s: float) -> None:
        getattr(client, method)(request=request, timeout=timeout_s, retry=None)

    return call


def _page_call(request: dict[str, object]) -> Call[tuple[list[Member], str]]:
    def call(client: Any, timeout_s: float) -> tuple[list[Member], str]:
        pager = client.list_managed_instances(request=request, timeout=timeout_s, retry=None)
        page = next(iter(pager.pages))  # one page per call: each has its own place in the budget
        raw = type(page).pb(page)  # the wrapped messages are six times slower to read
        return [read_member(managed) for managed in raw.managed_instances], raw.next_page_token

    return call


def _portions(action: Create | Delete) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(request id, names) for each call. Ids of later portions follow from the first, and the
    portions from the names alone, so that a repeat of the action repeats the same calls."""
    for index in itertools.count():
        names = action.names[index * NAMES_PER_CALL : (index + 1) * NAMES_PER_CALL]
        if not names:
            return
        own = uuid.uuid5(uuid.UUID(action.request_id), str(index))
        yield (str(own) if index else action.request_id), names
