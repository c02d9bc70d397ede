"""The identity tokens of two boots are of different seconds.

The scheduler takes keys of a later token alone, and tokens count in seconds. An agent that is
started anew within a second of its start waits for the next one, with keys that are new again;
else the scheduler would take it for the boot before, sent again, for as long as its token lasts.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from agent.proofs import WorkerProofs

FILE = "identity-issued-at"
TRIES = 3
WAIT_S = 1.0


async def later_boot(vm_dir: Path, prove: Callable[[], Awaitable[WorkerProofs]]) -> WorkerProofs:
    """Keys and a token (`prove` makes them) that are later than the ones of the boot before. After
    TRIES the last ones: a clock that was set back must not keep a VM from its work."""
    path = vm_dir / FILE
    before = _before(path)
    proofs = await prove()
    for _ in range(TRIES - 1):
        at = issued_at(proofs.token)
        if at is None or at > before:
            break
        await asyncio.sleep(WAIT_S)
        proofs = await prove()
    _note(path, issued_at(proofs.token) or 0)
    return proofs


def issued_at(token: str) -> int | None:
    """In seconds since 1970, as the token says; None: it does not. Nothing is checked."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        said = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    at = (said.get("iat") or said.get("issued_at")) if isinstance(said, dict) else None
    return at if isinstance(at, int) else None


def _before(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _note(path: Path, at: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(at))
    except OSError:
        return  # the next boot is later by itself, all but surely
