"""`python -m scheduler`: one replica of the service."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from config.load import load_settings
from core.errors import ZenError
from scheduler.api.services import Embedded
from scheduler.app import announce, serve
from scheduler.logs import configure_logs


def main() -> int:
    """Exit code 0 after a clean stop, 1 with one line when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m scheduler", description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML file; default: $ZEN_CONFIG or built in")
    parser.add_argument("--parent-fd", type=int, help="stop when this pipe is closed")
    args = parser.parse_args()
    named = os.environ.get("ZEN_CONFIG")
    path = args.config or (Path(named) if named else None)
    try:
        settings = load_settings(path, os.environ)
        configure_logs(settings.log_level)
        embedded = _embedded(os.environ.get("ZEN_EMBEDDED"))
        asyncio.run(serve(settings, embedded=embedded, parent_fd=args.parent_fd, on_ready=announce))
    except ZenError as error:
        print(f"zen: {error}", file=sys.stderr)
        return 1
    return 0


def _embedded(text: str | None) -> Embedded | None:
    if not text:
        return None
    said = json.loads(text)
    return Embedded(vm_cap=int(said["vm_cap"]), note=str(said["note"]))


if __name__ == "__main__":
    sys.exit(main())
