"""SIGTERM: is the machine going off, or only the agent, and how long do jobs have?"""

from __future__ import annotations

import asyncio
import os

from agent.metadata import LAST_LOOK_S, IdentitySource
from agent.state_machine import SPOT_OFF_GRACE_S

STANDARD_OFF_GRACE_S = 80.0
"""systemd waits 90 s for a service to end before it kills it; Google waits 120 s for systemd."""
_SYSTEMD = "/run/systemd/system"
_ASK = ("systemctl", "is-system-running")


async def machine_is_stopping() -> bool:
    """Whether systemd shuts the machine down. Where there is no systemd nobody knows."""
    if not os.path.isdir(_SYSTEMD):  # noqa: ASYNC240, PTH112  # of a file system in memory
        return False
    try:
        process = await asyncio.create_subprocess_exec(*_ASK, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(LAST_LOOK_S):
            said, _ = await process.communicate()
    except (OSError, TimeoutError):
        return False
    return said.strip() == b"stopping"


async def grace_of_machine(metadata: IdentitySource) -> float | None:
    """How long jobs may go on if it is the machine that goes off. None: only the agent is told."""
    if not await machine_is_stopping():
        return None
    return SPOT_OFF_GRACE_S if await metadata.is_spot() else STANDARD_OFF_GRACE_S
