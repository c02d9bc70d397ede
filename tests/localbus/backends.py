"""Pub/Sub servers as real processes: ours, and Google's emulator where it is installed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil

ROOT = Path(__file__).resolve().parents[2]
READY_S = 20.0
EMULATOR_READY_S = 60.0


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Returns as soon as the condition holds; fails with its name when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        select.select([], [], [], 0.01)


class LocalBusProcess:
    """`python -m localbus`; can be killed and started again on the same data."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        self._data_dir = data_dir
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.address = ""
        self.rest_address: str | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def start(self, *, port: int = 0, pass_fds: tuple[int, ...] = ()) -> dict[str, Any]:
        command = [sys.executable, "-m", "localbus", "--port", str(port)]
        command += ["--data-dir", str(self._data_dir), *self._options]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, pass_fds=pass_fds
        )
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_S)
        assert readable, f"localbus said nothing for {READY_S} s"
        ready: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.address = ready["grpc"]
        self.rest_address = ready["rest"]
        return ready

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self) -> int:
        code = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def localbus(data_dir: Path, *options: str) -> Iterator[LocalBusProcess]:
    bus = LocalBusProcess(data_dir, *options)
    bus.start()
    try:
        yield bus
    finally:
        if bus.process.poll() is None:
            bus.kill()


def why_no_gcloud() -> str | None:
    """The reason why gcloud cannot be used here, or None."""
    return None if shutil.which("gcloud") else "gcloud is not installed"


def why_no_emulator() -> str | None:
    """The reason why Google's emulator cannot run here, or None."""
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        return "gcloud is not installed"
    if shutil.which("java") is None:
        return "java is not installed"
    sdk = Path(gcloud).resolve().parents[1]
    if not (sdk / "platform" / "pubsub-emulator").is_dir():
        return "the gcloud component pubsub-emulator is not installed"
    return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def gcloud_environment(config: Path) -> dict[str, str]:
    """gcloud with its own configuration, no credentials and no questions."""
    return {
        **os.environ,
        "CLOUDSDK_CONFIG": str(config),
        "CLOUDSDK_CORE_PROJECT": "contract",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
    }


@contextlib.contextmanager
def google_emulator(scratch: Path) -> Iterator[str]:
    """Its address. gcloud starts a shell that starts java: the whole session is ended."""
    address = f"127.0.0.1:{free_port()}"
    command = ["gcloud", "beta", "emulators", "pubsub", "start", f"--host-port={address}"]
    command += [f"--data-dir={scratch / 'data'}"]
    (scratch / "data").mkdir()
    log = scratch / "emulator.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=gcloud_environment(scratch / "config"),
            start_new_session=True,
        )
    try:
        _wait_serving(process, address, log)
        yield address
    finally:
        _end_family(process)


def _wait_serving(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    with grpc.insecure_channel(address) as channel:
        ready = grpc.channel_ready_future(channel)
        deadline = time.monotonic() + EMULATOR_READY_S
        while time.monotonic() < deadline:
            assert process.poll() is None, f"the emulator ended: {log.read_text()[-2000:]}"
            with contextlib.suppress(grpc.FutureTimeoutError):
                ready.result(timeout=0.5)
                return
    raise AssertionError(f"no emulator within {EMULATOR_READY_S} s: {log.read_text()[-2000:]}")


def _end_family(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and all it started, also what has moved to a group of its own."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=5)
    for survivor in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            survivor.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5)
    process.wait(5)
