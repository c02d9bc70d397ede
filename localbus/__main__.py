"""`python -m localbus`: serves until it is told to stop, or its parent is gone."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

import structlog

from core.stopping import stop_event
from localbus import lean
from localbus.journal import JournalLocked


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="localbus", description="A durable server that speaks Google Pub/Sub."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default %(default)s)")
    parser.add_argument(
        "--port", type=_port, default=8085, help="gRPC port, 0 for any (default %(default)s)"
    )
    parser.add_argument(
        "--rest-port", type=_port, help="REST port for gcloud, 0 for any (default: no REST)"
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="where messages are kept")
    parser.add_argument(
        "--no-fsync", action="store_true", help="faster; a power cut may lose confirmed messages"
    )
    parser.add_argument(
        "--parent-fd", type=int, help="read end of a pipe: stop when its other end is closed"
    )
    return parser.parse_args()


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected 0 to 65535")
    return int(text)


async def _serve(arguments: argparse.Namespace) -> None:
    lean.leave_clients_out()
    from localbus.server import LocalBus  # noqa: PLC0415

    stop = stop_event(arguments.parent_fd)
    bus = LocalBus(
        arguments.data_dir,
        arguments.host,
        arguments.port,
        arguments.rest_port,
        fsync=not arguments.no_fsync,
    )
    await bus.start()
    try:
        ready = {"event": "ready", "grpc": bus.grpc_address, "rest": bus.rest_address}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        await bus.stop()


def _log_to_stderr() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def main() -> int:
    """Exit code 0 after a clean stop, 1 with one line on stderr when it cannot start."""
    arguments = _arguments()
    _log_to_stderr()
    try:
        asyncio.run(_serve(arguments))
    except (JournalLocked, OSError, RuntimeError, ValueError) as error:
        sys.stderr.write(f"localbus: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
