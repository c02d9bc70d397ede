"""Text and documents as every store can keep them: without NUL and without half a character.

What workers and clouds say may contain both, and one bad word must not stop a commit. What a person
has submitted is never changed: a spec that cannot be kept as it is is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import attrgetter

from core.job_fields import SPEC_FIELDS, JobSpec

_NUL = "\x00"
_WORDLESS = frozenset({type(None), bool, int, float, datetime})
_parts = attrgetter(*(field.attribute for field in SPEC_FIELDS))


def clean(words: str) -> str:
    """The words with a replacement character for whatever cannot be stored."""
    if _NUL in words:
        words = words.replace(_NUL, "\N{REPLACEMENT CHARACTER}")
    return words.encode(errors="replace").decode()


def cleaned(value: object) -> object:
    """The same for a document: mappings, sequences, text; everything else stays."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return cleaned_mapping(value)
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return value


def cleaned_mapping(value: Mapping[str, object]) -> dict[str, object]:
    return {clean(str(key)): cleaned(item) for key, item in value.items()}


def is_storable(spec: JobSpec) -> bool:
    """Whether the spec can be kept exactly as it is: cleaning it would change what is run."""
    words: list[str] = []
    _collect(_parts(spec), words)
    text = "".join(words)
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return _NUL not in text


def _collect(values: Iterable[object], words: list[str]) -> None:
    for value in values:
        # Most values first: asking each whether it is a mapping takes long.
        if type(value) in _WORDLESS:
            continue
        if isinstance(value, str):
            words.append(value)
        elif isinstance(value, list | tuple):
            _collect(value, words)
        elif isinstance(value, Mapping):
            _collect(value, words)
            _collect(value.values(), words)
