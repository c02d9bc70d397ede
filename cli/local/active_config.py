"""Which configuration a command reads: the file that is named, else that of the running stack, else
the one that ships; and which database and bus belong to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.paths import PROGRAM, Running, alive, home

if TYPE_CHECKING:
    from config.settings import Settings


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A file (None: the one that ships) and the environment that wins over it."""

    file: Path | None
    environ: Mapping[str, str]
    running: bool = False
    """Whether it is what the stack of this state directory reads."""

    @property
    def name(self) -> str:
        """The file, for people."""
        if self.file is not None:
            return str(self.file)
        from config.load import DEFAULT_PATH

        return str(DEFAULT_PATH)

    @property
    def words(self) -> str:
        """Which file it is, and why that one."""
        if self.running:
            return f"{self.name}, which the running stack reads"
        if self.file is not None:
            return self.name
        return f"{self.name}, which ships with zen: nothing runs here and no file is named"

    def load(self) -> Settings:
        """The settings, or ConfigError with every fault."""
        from config.load import load_settings

        return load_settings(self.file, self.environ)


def source(named: str | None) -> ConfigSource:
    """What is in force here, unless a file is named (by an option or ZEN_CONFIG)."""
    return choose(named or os.environ.get("ZEN_CONFIG"), os.environ, _running())


def choose(named: str | None, environ: Mapping[str, str], running: Running | None) -> ConfigSource:
    """The file, and the addresses of the running stack where the environment names none."""
    if named:
        return ConfigSource(Path(named), environ)
    if running is None or not running.config:
        return ConfigSource(None, environ)
    addresses = {
        "DATABASE_URL": running.database,
        "PUBSUB_EMULATOR_HOST": running.bus,
        "ZEN_COMPUTE_URL": running.sim,
    }
    known = {name: value for name, value in addresses.items() if value}
    given = {name: value for name, value in environ.items() if value or name not in known}
    # Two names for one thing: either of them names the database.
    if given.get("ZEN_DATABASE_URL"):
        known.pop("DATABASE_URL", None)
    if given.get("ZEN_PUBSUB_HOST"):
        known.pop("PUBSUB_EMULATOR_HOST", None)
    return ConfigSource(Path(running.config), {**known, **given}, running=True)


def unreachable_hint(found: ConfigSource, what: str, variable: str) -> str:
    """What to do when the address that was taken does not answer."""
    if found.running:
        return f"it is the running stack's: see {PROGRAM} status"
    return f"start a stack with {PROGRAM} up, or name the {what} with {variable} or --config"


def _running() -> Running | None:
    found = home().read()
    return found if found is not None and alive(found.pid) else None
