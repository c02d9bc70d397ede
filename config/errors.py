"""What goes wrong while configuration is read."""

from __future__ import annotations

from core.errors import BadInput


class ConfigError(BadInput):
    """The operator must change the configuration. Carries every fault, one per line."""

    code = "bad_config"

    def __str__(self) -> str:
        count = len(self.faults)
        head = f"{count} fault{'s' if count > 1 else ''} in the configuration"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])
