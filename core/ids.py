"""The one place that throws dice for names: seeded in simulations, system entropy in service."""

from __future__ import annotations

import random
import uuid
from datetime import datetime

# Without vowels and look-alikes, so that no suffix spells a word or is misread.
_SUFFIX_ALPHABET = "bcdfghjkmnpqrstvwxz2456789"
_KEY_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


class RandomIds:
    """Ids from one source of randomness."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self._dice = dice or random.SystemRandom()

    def uid(self, now: datetime) -> str:
        """A UUIDv7: sorts by time, so its index pages stay warm and it writes half the WAL."""
        milliseconds = int(now.timestamp() * 1000) & 0xFFFF_FFFF_FFFF
        random_a = self._dice.getrandbits(12)
        random_b = self._dice.getrandbits(62)
        value = (milliseconds << 80) | (0x7 << 76) | (random_a << 64) | (0x2 << 62) | random_b
        text = f"{value:032x}"  # as str(uuid.UUID) has it, at a third of its price
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token(self) -> str:
        """Sixteen hex digits: lease ids and boot nonces."""
        return f"{self._dice.getrandbits(64):016x}"

    def seed(self) -> bytes:
        """Thirty-two bytes that nobody can guess: what a private key is made of."""
        return self._dice.randbytes(32)

    def request_id(self) -> str:
        """A UUID that the cloud accepts as the id of a call (never zero)."""
        return str(uuid.UUID(int=self._dice.getrandbits(128), version=4))

    def suffix(self) -> str:
        """The four characters that end a VM name."""
        return "".join(self._dice.choice(_SUFFIX_ALPHABET) for _ in range(4))

    def api_key(self) -> tuple[str, bytes]:
        """(id, secret) of a new key; `core.api_keys.key_text` makes its text."""
        return "".join(self._dice.choices(_KEY_ALPHABET, k=12)), self._dice.randbytes(32)

    def secret(self) -> bytes:
        """256 bits that nobody guesses: verifiers, states and nonces of sign-ins."""
        return self._dice.randbytes(32)
