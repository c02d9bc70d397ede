"""The one way to live settings."""

from __future__ import annotations

from config.settings import Settings


class LiveSettings:
    """Holds the settings in force. `current` is an immutable snapshot: code that works in cycles
    reads it once at the start of a cycle, so that no cycle sees half of an edit."""

    def __init__(self, settings: Settings) -> None:
        self._current = settings

    @property
    def current(self) -> Settings:
        return self._current

    def adopt(self, settings: Settings) -> None:
        """These are in force from now on."""
        self._current = settings
