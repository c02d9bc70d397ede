"""Arrays, groups and dependencies: what their words mean. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from core.errors import Ambiguous, NotFound
from core.names import JOB_ID

ARRAY_MAX = 10_000
AFTER_MAX = 32
INDEX_MAX = 999_999
_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?\Z", re.ASCII)
_AFTER = re.compile(r"([^:]*)(?::(ok|any))?\Z")
_INDEX = "(?:[0-9] *){1,6}"
_INDEXES = f"{_INDEX}(?:- *{_INDEX}(?:: *{_INDEX})?)?"
ARRAY_PATTERN = f"^ *{_INDEXES}(?:, *{_INDEXES})*$"
"""Its form, as OpenAPI says it: blanks do not count."""
AFTER_PATTERN = f"^{JOB_ID.pattern[:-2]}(?::(?:ok|any))?$"
ARRAY_WORDS = (
    f'at most {ARRAY_MAX} indexes from 0 to {INDEX_MAX}, each once: "1-1000", "1,5,9" or "0-90:10"'
)
AFTER_WORDS = f'at most {AFTER_MAX} jobs or groups, each once: "ID", "ID:ok" or "ID:any"'


@dataclass(frozen=True, slots=True)
class After:
    """Wait for a job, or for all jobs of a group."""

    needs: str
    good_only: bool = True
    """False: any end will do."""

    def __str__(self) -> str:
        return f"{self.needs}:{'ok' if self.good_only else 'any'}"


class GroupKey(NamedTuple):
    """The identity of a group: a user's groups in two tenants are two groups."""

    tenant_id: str
    user_id: str
    group: str


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that a hold waits for: a job, or every job that a group has by then."""

    uid: str | None
    group: GroupKey | None
    after: After


# Asked for several times by each check of a submission, and ten thousand numbers take their time.
@lru_cache(maxsize=16)
def parse_array(text: str) -> tuple[int, ...] | None:
    """The indexes in order; None if the words are wrong, or name too many or one of them twice."""
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = _PART.match(part)
        if match is None:
            return None
        low = int(match[1])
        high, step = int(match[2] or low), int(match[3] or 1)
        if high < low or step < 1 or len(found) + (high - low) // step + 1 > ARRAY_MAX:
            return None
        found += range(low, high + 1, step)
    return tuple(sorted(found)) if len(set(found)) == len(found) else None


def parse_after(text: str) -> After | None:
    match = _AFTER.match(text)
    if match is None or not JOB_ID.match(match[1]):
        return None
    return After(match[1], match[2] != "any")


def bad_end(needs: str, status: str, *, group: bool) -> str:
    """Why a job that waited for a job, or for the jobs of a group, cannot run."""
    if group:
        return f"it waited for group {needs}, and a job of it ended {status}"
    return f"it waited for job {needs}, and that ended {status}"


def dependency_words(after: Iterable[str]) -> str:
    """Why a job behind a hold waits."""
    words = [word.removesuffix(":ok").replace(":any", " (in any way)") for word in after]
    return f"waits for the end of {', '.join(words)}"


class Owner(NamedTuple):
    """Whose a job or a group is."""

    tenant_id: str
    user_id: str


def only_one(noun: str, name: str, user_id: str | None, owners: Sequence[Owner]) -> Owner:
    """The owner of a job or a group that people know by its name alone: NotFound if it has none,
    Ambiguous if it has several and it was not said which."""
    if not owners:
        whose = "" if user_id is None else f" of user {user_id}"
        raise NotFound(f"there is no {noun} {name}{whose}")
    if len({owner.user_id for owner in owners}) > 1:
        raise Ambiguous(f"several users have a {noun} {name}: say which user_id (--user)")
    if len(owners) > 1:
        raise Ambiguous(f"several tenants have a {noun} {name}: say which tenant_id (--tenant)")
    return owners[0]
