"""Submissions that come together: checked a few at a time, so that they share commits and others
are served in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
PART = 100
"""Submissions that are checked without a pause."""
PARTS_MAX = 4
"""Parts on their way at once: one is written while the next is checked."""
MANY = ("array", "replicas")
"""Fields by which a submission has many jobs."""


async def submit_together(
    jobs: Sequence[object], submit_one: Callable[[int], Awaitable[T]]
) -> list[T | Exception]:
    """What became of each, in their order. `submit_one` takes the number of a job."""
    found: list[T | Exception] = []
    under_way: deque[asyncio.Future[list[T | BaseException]]] = deque()

    async def settle() -> None:
        for one in await under_way.popleft():
            if isinstance(one, BaseException) and not isinstance(one, Exception):
                raise one
            found.append(one)

    for numbers, waits in parts_of(jobs):
        while under_way and (waits or len(under_way) >= PARTS_MAX):
            await settle()
        part = asyncio.gather(*map(submit_one, numbers), return_exceptions=True)
        under_way.append(part)
        await asyncio.sleep(0)
    while under_way:
        await settle()
    return found


def parts_of(jobs: Sequence[object]) -> Iterator[tuple[range, bool]]:
    """Numbers of jobs that go together; and whether all before them must be stored first, because
    the first of them waits for others. A submission of many jobs goes alone: few of them may wait
    for their turn at a time."""
    begin, waits, full = 0, False, False
    for number, job in enumerate(jobs):
        said = job if isinstance(job, Mapping) else {}
        after, many = bool(said.get("after")), any(said.get(name) for name in MANY)
        if number > begin and (after or many or full or number - begin >= PART):
            yield range(begin, number), waits
            begin, waits = number, False
        waits, full = waits or after, many
    if jobs:
        yield range(begin, len(jobs)), waits
