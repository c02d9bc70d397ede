"""Ids of jobs: those we make, and those of the jobs that one submission stands for. Pure."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace

from core.errors import BadInput, Fault
from core.groups import parse_array
from core.job_fields import JobSpec
from core.submission import shown

KEY_CHARS_MAX = 255
_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def readable_id(uid: str) -> str:
    """A job id of ten characters from the random end of a uid: 50 bits, none look alike."""
    bits = uuid.UUID(uid).int
    chars = [_ID_ALPHABET[(bits >> shift) & 31] for shift in range(0, 50, 5)]
    return "j-" + "".join(chars)


def key_job_id(key: str) -> str:
    """The job id that belongs to an idempotency key."""
    if not key.isprintable() or not 1 <= len(key) <= KEY_CHARS_MAX:
        expected = f"1 to {KEY_CHARS_MAX} printable characters"
        raise BadInput([Fault("Idempotency-Key", shown(key), expected)])
    return "k-" + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:24]


def expand(spec: JobSpec) -> list[JobSpec]:
    """The jobs that a submission stands for: one, or one for each index of its array; of a gang
    all members, the first one as it was submitted."""
    return [member for one in _indexed(spec) for member in _members(one)]


def _members(spec: JobSpec) -> list[JobSpec]:
    """Of a group people see the gang once: by its first member."""
    others = range(1, spec.replicas)
    return [spec, *(replace(spec, job_id=f"{spec.job_id}.{n}", group=None) for n in others)]


def _indexed(spec: JobSpec) -> list[JobSpec]:
    if spec.array is None:
        return [spec]
    made = []
    for index in parse_array(spec.array) or ():
        words = {"ZEN_ARRAY_ID": spec.job_id, "ZEN_ARRAY_INDEX": str(index)}
        made.append(
            replace(
                spec,
                job_id=f"{spec.job_id}-{index}",
                group=spec.job_id,
                environment={**spec.environment, **words},
            )
        )
    return made
