"""Ids of jobs that we make. Pure."""

from __future__ import annotations

import hashlib

from core.errors import BadInput, Fault
from core.submission import shown

KEY_CHARS_MAX = 255
_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [low + high for high in _ID_ALPHABET for low in _ID_ALPHABET]
"""Ten bits → two characters."""


def readable_id(uid: str) -> str:
    """A job id of ten characters from the random end of a uid: 50 bits, none look alike."""
    bits = int(uid[-12:], 16) | int(uid[-17:-13], 16) << 48
    chars = [_PAIRS[(bits >> shift) & 1023] for shift in range(0, 50, 10)]
    return "j-" + "".join(chars)


def key_job_id(key: str) -> str:
    """The job id that belongs to an idempotency key."""
    if not key.isprintable() or not 1 <= len(key) <= KEY_CHARS_MAX:
        expected = f"1 to {KEY_CHARS_MAX} printable characters"
        raise BadInput([Fault("Idempotency-Key", shown(key), expected)])
    return "k-" + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:24]
