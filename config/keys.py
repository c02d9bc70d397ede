"""One key of the configuration, as a row of the tables in config/schema.py and beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from config.value_types import ValueType

REQUIRED: Final = object()
WILD: Final = "*"


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `*` in the path stands for any name, described by `names` of the section."""

    path: str
    kind: ValueType
    default: object
    doc: str
    secret: bool = False
    cloud: bool = False
    """Only a cloud's adapter reads it, once, at the start; at the top of the document."""
    alias: str = ""
    """A variable that others also use for this, e.g. DATABASE_URL."""

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def variable(self) -> str:
        """The environment variable that overrides it; empty for keys under a `*`."""
        return "" if WILD in self.path else "ZEN_" + self.path.upper().replace(".", "__")
