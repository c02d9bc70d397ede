"""`python -m agent.node`: the machine at hand as a place for a worker.

It starts and ends `python -m agent` when the scheduler asks for it over a socket that only this
user can open. It holds nothing that must survive: when it dies, the worker and its jobs die with
it, as on a machine that lost its power, and the scheduler starts anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.metadata import ENROLMENT, SETTINGS
from core.ids import RandomIds
from core.stopping import stop_event
from messaging.proofs.enrolment import instance_secret
from messaging.proofs.texts import from_text, to_text

LINE_BYTES_MAX = 1024 * 1024
NAMES_MAX = 16
STOP_S = 5.0
ENDED_MAX = 100
"""Workers that ended are remembered until the scheduler lets them go, but not for ever."""
_NOT_FOR_WORKERS = ("DATABASE_URL", "PUBSUB_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS")


@dataclass(slots=True)
class AgentProcess:
    """One agent process. `lifeline` is our end of the pipe whose closing ends it."""

    name: str
    instance_id: str
    process: asyncio.subprocess.Process
    lifeline: int

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def shown(self) -> dict[str, str]:
        """In the words of the cloud."""
        status = "RUNNING" if self.alive else "TERMINATED"
        return {"name": self.name, "instance_id": self.instance_id, "status": status}

    async def end(self) -> None:
        """Asked first, so that its jobs' processes are ended in order; then at once."""
        if self.alive:
            with suppress(ProcessLookupError):
                self.process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), STOP_S)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1


@dataclass(slots=True)
class Node:
    """The machine: at most one worker at a time, because its GPUs are one set."""

    settings: Mapping[str, str]
    """As an instance template would say them."""
    directory: Path
    workers: dict[str, AgentProcess] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, words: object) -> dict[str, object]:
        """What came over the socket, done or refused."""
        if not isinstance(words, dict):
            return {"error": "expected a JSON object"}
        names = words.get("names", [])
        if not isinstance(names, list) or not all(_is_name(name) for name in names):
            return {"error": f"names: expected at most {NAMES_MAX} names of VMs"}
        match words.get("do"):
            case "list":
                return {"vms": [worker.shown() for worker in self.workers.values()]}
            case "start":
                async with self._lock:
                    return await self._start(names[:NAMES_MAX])
            case "stop":
                async with self._lock:
                    return await self._stop(names[:NAMES_MAX])
            case other:
                return {"error": f"do: {other!r}, expected list, start or stop"}

    async def _start(self, names: Sequence[str]) -> dict[str, object]:
        for name in names:
            if name in self.workers:
                continue  # asked twice: the first answer was lost
            busy = [worker.name for worker in self.workers.values() if worker.alive]
            if busy:
                return {"error": f"this machine already runs {busy[0]}"}
            self.workers[name] = await self._begin(name)
            for old in [w for w in self.workers.values() if not w.alive][:-ENDED_MAX]:
                del self.workers[old.name]
        return {"ok": True}

    async def _stop(self, names: Sequence[str]) -> dict[str, object]:
        for name in names:
            worker = self.workers.get(name)
            if worker is not None:
                await worker.end()
                del self.workers[name]
        return {"ok": True}

    async def _begin(self, name: str) -> AgentProcess:
        instance_id = RandomIds().token()
        theirs, ours = os.pipe()
        told = {**self.settings, "name": name, "id": instance_id}
        if secret := self.settings.get(ENROLMENT):
            own = instance_secret(from_text(secret), name, instance_id)
            told[ENROLMENT] = to_text(own)
        environment = {
            variable: value
            for variable, value in os.environ.items()
            if variable not in _NOT_FOR_WORKERS
            and (not variable.startswith("ZEN_") or variable == "ZEN_STACK_HOME")
        }
        environment |= {
            SETTINGS: json.dumps(told),
            "ZEN_VM_DIR": str(self.directory),
            "ZEN_PARENT_FD": str(theirs),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "agent"),
                stdin=asyncio.subprocess.DEVNULL,
                env=environment,
                pass_fds=(theirs,),
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        return AgentProcess(name, instance_id, process, ours)

    async def close(self) -> None:
        """The machine goes off."""
        await asyncio.gather(*(worker.end() for worker in self.workers.values()))


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 63 and name.replace("-", "").isalnum()


async def serve(node: Node, socket: Path, parent_fd: int | None) -> None:
    """Until SIGTERM, SIGINT or the parent's end."""
    stop = stop_event(parent_fd)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ValueError):
            while line := await reader.readline():
                writer.write(json.dumps(await node.answer(_read(line))).encode() + b"\n")
                await writer.drain()
        writer.close()

    before = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(talk, str(socket), limit=LINE_BYTES_MAX)
    finally:
        os.umask(before)
    print(json.dumps({"event": "ready", "socket": str(socket)}), flush=True)
    await stop.wait()
    server.close()
    await node.close()


def _read(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def main() -> int:
    """Exit code 0 after a clean stop."""
    parser = argparse.ArgumentParser(prog="python -m agent.node", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--dir", type=Path, required=True, help="working files of the worker")
    parser.add_argument("--settings", type=Path, required=True, help="JSON, as metadata says them")
    parser.add_argument("--parent-fd", type=int, help="stop when this pipe is closed")
    args = parser.parse_args()
    args.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    args.socket.unlink(missing_ok=True)
    node = Node(json.loads(args.settings.read_text(encoding="utf-8")), args.dir)
    asyncio.run(serve(node, args.socket, args.parent_fd))
    return 0


if __name__ == "__main__":
    sys.exit(main())
