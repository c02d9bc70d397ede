"""``python -m sim --world FILE --state-dir DIR``: the pretend cloud as a process of its own."""

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path

from core.stopping import stop_event
from sim.cloud.parsing import InvalidInput
from sim.cloud.server import PretendCloud
from sim.cloud.wire import timestamp
from sim.cloud.world import World, load_world


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": timestamp(record.created),
            "severity": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sim", description="The pretend Google Cloud.")
    parser.add_argument("--world", type=Path, required=True, help="the world, a JSON file")
    parser.add_argument("--state-dir", type=Path, required=True, help="VM directories and logs")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--parent-fd", type=int, help="a pipe; its end of file stops the server")
    parser.add_argument("--log-level", default="WARNING", choices=("INFO", "WARNING", "ERROR"))
    parser.add_argument("command", nargs="*", help="what a VM runs, after --; default: the agent")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=arguments.log_level, handlers=[handler])
    try:
        world = load_world(arguments.world)
        return asyncio.run(_serve(world, arguments))
    except InvalidInput as bad:
        for problem in bad.problems:
            print(f"{bad.what}: {problem}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"the pretend cloud cannot start: {error}", file=sys.stderr)
        return 1


async def _serve(world: World, arguments: argparse.Namespace) -> int:
    stop = stop_event(arguments.parent_fd)
    extra = {"command": arguments.command} if arguments.command else {}
    cloud = PretendCloud(
        world, arguments.state_dir, host=arguments.host, port=arguments.port, **extra
    )
    async with cloud:
        ready = {
            "event": "ready",
            "compute": cloud.compute_url,
            "certificates": cloud.certificates_url,
        }
        print(json.dumps(ready), flush=True)
        asked = asyncio.create_task(stop.wait())
        failed = asyncio.create_task(cloud.wait_failed())
        await asyncio.wait({asked, failed}, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        failed.cancel()
    return 0


if __name__ == "__main__":
    sys.exit(main())
