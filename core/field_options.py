"""How a field is said on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Said(StrEnum):
    """How an option of the command line says its value."""

    PLAIN = "plain"
    """As its type is: a number, a word, K=V, yes or no; a list is a repeatable option."""
    YES = "yes"
    """The option alone means true; there is no option for false."""
    GIGABYTES = "gigabytes"
    SECONDS = "seconds"
    """A span, e.g. 90s or 2h, sent in seconds."""
    MINUTES = "minutes"
    MOMENT = "moment"
    """A moment, or a span from now on."""
    NAMED = "named"
    """A number, or a name that stands for one."""
    REPLICAS = "replicas"
    """4, or 2-8."""


@dataclass(frozen=True, slots=True)
class Option:
    """The option of `zen submit`."""

    flags: str
    """All spellings: "--gpus -g", or "--spot/--no-spot"."""
    metavar: str | None
    help: str
    said: Said = Said.PLAIN

    @property
    def flag(self) -> str:
        """The first spelling."""
        return self.flags.split()[0].split("/")[0]
