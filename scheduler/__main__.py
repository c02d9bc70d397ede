"""`python -m scheduler`: one replica of the service."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

import uvloop

from core.errors import ZenError
from scheduler.api.services import Embedded
from scheduler.app import announce, serve
from scheduler.operations.first_config import begin
from scheduler.operations.logs import configure_logs


def main() -> int:
    """Exit code 0 after a clean stop, 1 with one line when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m scheduler", description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML file; default: $ZEN_CONFIG or built in")
    parser.add_argument("--parent-fd", type=int, help="stop when this pipe is closed")
    args = parser.parse_args()
    named = os.environ.get("ZEN_CONFIG")
    path = args.config or (Path(named) if named else None)
    try:
        # libuv's loop spends about a third less CPU on a request than Python's own.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(path, args.parent_fd))
    except ZenError as error:
        print(f"zen: {error}", file=sys.stderr)
        return 1
    return 0


async def _run(path: Path | None, parent_fd: int | None) -> None:
    start = await begin(path, os.environ)
    configure_logs(start.candidate.settings.log_level)
    if start.note:
        print(f"zen: {start.note}", file=sys.stderr)
    embedded = _embedded(os.environ.get("ZEN_EMBEDDED"))
    await serve(start, embedded=embedded, parent_fd=parent_fd, on_ready=announce)


def _embedded(text: str | None) -> Embedded | None:
    if not text:
        return None
    said = json.loads(text)
    return Embedded(vm_cap=int(said["vm_cap"]), note=str(said["note"]))


if __name__ == "__main__":
    sys.exit(main())
