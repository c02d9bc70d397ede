"""A configuration that grows while the local stack runs: its new groups, in the pretend cloud.

In the real cloud somebody makes them (`zen infra gcloud`); here nobody else would.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from cli.client import PRETEND_CLOUD, Client
from config.load import load_settings
from config.settings import Settings
from core.errors import ZenError

LOOK_S = 1.0
World = Mapping[str, object]


class Regrouper:
    """Looks at the file of the configuration, and tells the cloud of groups that are new."""

    def __init__(
        self,
        config: Path,
        file: Path,
        build: Callable[[Settings], World],
        report: Callable[[str, str], None],
    ) -> None:
        self._config, self._file, self._build, self._report = config, file, build, report
        self._text = ""
        self.seen: int | None = None
        """The file as it was when it was last read."""

    def write(self, settings: Settings) -> Path:
        """The world file, from which the cloud starts (again)."""
        self.seen = self._stamp()
        self._text = json.dumps(self._build(settings), indent=1)
        self._file.write_text(self._text, encoding="utf-8")
        return self._file

    async def follow(self, address: str) -> None:
        """For ever. A file that cannot be read is left to the scheduler, which says why."""
        while True:
            await asyncio.sleep(LOOK_S)
            stamp = self._stamp()
            if stamp is not None and stamp != self.seen and await self._tell(address):
                self.seen = stamp

    async def _tell(self, address: str) -> bool:
        """Whether there is nothing left to say about the file as it is."""
        try:
            settings = await asyncio.to_thread(load_settings, self._config, {})
            world = self._build(settings)
        except ZenError:
            return True
        text = json.dumps(world, indent=1)
        if text == self._text:
            return True
        try:
            made = await asyncio.to_thread(_post, address, world["migs"])
        except ZenError as error:
            self._report("note", f"the pretend cloud got no new groups yet: {error}")
            return False
        self._file.write_text(text, encoding="utf-8")
        self._text = text
        for name in made:
            self._report("note", f"the configuration grew: {name} was made in the pretend cloud")
        return True

    def _stamp(self) -> int | None:
        try:
            return self._config.stat().st_mtime_ns
        except FileNotFoundError:
            return None


def _post(address: str, groups: object) -> list[str]:
    with Client(address, server=PRETEND_CLOUD) as client:
        made = client.post("/groups", {"migs": groups})["made"]
        return [str(name) for name in made]
