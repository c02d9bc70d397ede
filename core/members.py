"""The jobs that one submission stands for: one, one for each index of its array, and of a gang one
for each rank.

A store keeps what the members of a submission have in common once, and of each member its index
and rank alone. It reads members back by `member_spec()`: what that makes of an index and a rank
never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from core.groups import parse_array
from core.job_fields import JobSpec
from core.records import Changer


@dataclass(frozen=True, slots=True)
class Member:
    """Which job of a submission."""

    index: int | None = None
    """In its array; None: it is no array."""
    rank: int = 0
    """In its gang."""


@dataclass(frozen=True, slots=True)
class SharedMember:
    """A member whose submission is stored once for all of them."""

    spec_id: str
    member: Member


_changed = Changer(JobSpec)


def members_of(spec: JobSpec) -> Iterator[Member]:
    """All jobs of a submission: index by index, and the members of a gang one after the other."""
    indexes = (None,) if spec.array is None else parse_array(spec.array) or ()
    return (Member(index, rank) for index in indexes for rank in range(spec.replicas))


def count_of(spec: JobSpec) -> int:
    """How many jobs a submission stands for."""
    return spec.replicas * (1 if spec.array is None else len(parse_array(spec.array) or ()))


def member_spec(spec: JobSpec, member: Member) -> JobSpec:
    """One job of a submission. Of a gang the first member is as it was submitted; the others are in
    no group, because people see the gang there once."""
    end = f".{member.rank}" if member.rank else ""
    if member.index is None:
        return _changed(spec, job_id=spec.job_id + end, group=None) if end else spec
    words = {"ZEN_ARRAY_ID": spec.job_id, "ZEN_ARRAY_INDEX": str(member.index)}
    return _changed(
        spec,
        job_id=f"{spec.job_id}-{member.index}{end}",
        group=None if end else spec.job_id,
        environment={**spec.environment, **words},
    )


def first_job_id(spec: JobSpec) -> str:
    """The id of the first job of a submission."""
    return member_spec(spec, next(members_of(spec))).job_id
