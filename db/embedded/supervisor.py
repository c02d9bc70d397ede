"""Stands between a PostgreSQL server and its owner, so that the server never outlives the owner.

Run by path (`python -S -I supervisor.py PLAN`), on the standard library alone: it starts in
milliseconds and stays small. It holds an exclusive lock on the data directory, makes the
cluster on first use, serves until told to stop (SIGTERM, or end of file on the owner's pipe,
which also comes after kill -9 of the owner), and shuts the server down in a bounded time.

A parent-death signal on the server guards against the death of the supervisor itself. It cannot
replace the supervisor: it is bound to a *thread* of the owner, and is lost when credentials change.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn, TypedDict

POLL_S = 0.005
INITDB_STOP_S = 5.0
SOCKET_PREFIX = "zen-pg-"


class ServerPlan(TypedDict):
    """What the supervisor is told; see db/embedded/server.py, which writes it."""

    home: str
    initdb: list[str]
    """Ends before the directory, which is appended."""
    server: list[str]
    """Ends before the socket directory's setting, which is appended."""
    init_uid: int | None
    """Who owns the directory while initdb runs; None: our own user."""
    server_uid: int | None
    socket_base: str
    url: str
    """With {socket_dir}."""
    parent_fd: int | None
    start_timeout_s: float
    stop_timeout_s: float


class Failed(Exception):
    """Could not start; the message goes to the owner."""


class Asked(Exception):
    """We were told to stop while starting."""


class SignalWatch:
    """Wakes us for signals, children and the owner's death, through one select()."""

    def __init__(self, parent_fd: int | None) -> None:
        self._parent_fd = parent_fd
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        self.asked = False
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._ask)
        # A terminal's Ctrl-C reaches the whole group; an owner with a pipe decides for itself
        # when its database goes.
        signal.signal(signal.SIGINT, self._ask if parent_fd is None else signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _ask(self, *_: object) -> None:
        self.asked = True

    def pause(self, timeout_s: float | None) -> bool:
        """Waits for any news; True once we have been told to stop."""
        fds = [self._read] + ([] if self._parent_fd is None else [self._parent_fd])
        ready, _, _ = select.select(fds, [], [], timeout_s)
        if self._read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        if self._parent_fd in ready and self._parent_fd is not None:
            self.asked = self.asked or os.read(self._parent_fd, 4096) == b""
        return self.asked


def main(plan: ServerPlan) -> int:
    """Serves until told to stop. 0: as asked; 1: could not start, or the server died by itself."""
    watch = SignalWatch(plan["parent_fd"])
    socket_dir: Path | None = None
    server: subprocess.Popen[bytes] | None = None
    try:
        lock = take_lock(Path(plan["home"]), watch)
        socket_dir = make_socket_dir(plan)
        note(lock, "serving", socket_dir)
        ensure_cluster(plan, watch)
        server = start_server(plan, socket_dir, lock, watch)
        url = plan["url"].format(socket_dir=socket_dir)
        say({"event": "ready", "url": url, "pid": server.pid})
        while server.poll() is None and not watch.pause(None):
            pass
        if server.poll() is not None:
            return 1
        note(lock, "stopping", socket_dir)
        return 0
    except Asked:
        return 0
    except (Failed, OSError) as fault:
        say({"event": "failed", "error": str(fault)})
        return 1
    finally:
        if server is not None:
            stop_server(server, plan["stop_timeout_s"])
        if socket_dir is not None:
            remove_socket_dir(socket_dir)


def say(event: dict[str, object]) -> None:
    """One line of JSON to the process that started us; it may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


# --- the lock ---------------------------------------------------------------------------


def take_lock(home: Path, watch: SignalWatch) -> int:
    """The server's processes inherit the lock, so it is free only when all of them are gone.

    A predecessor that is shutting down is waited for; one that serves is an error.
    """
    fd = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(fd, True)
    for tries in range(int(20 / POLL_S)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # One second of grace: the predecessor's owner may have died this very moment.
            if tries * POLL_S > 1.0 and noted(fd).get("state") == "serving":
                break
            if watch.pause(POLL_S):
                raise Asked from None
        else:
            remove_socket_dir(Path(str(noted(fd).get("socket_dir", ""))))
            return fd
    raise Failed(
        f"a PostgreSQL server is already running on {home / 'pgdata'} "
        f"(supervisor's process id {noted(fd).get('keeper')}); stop it first"
    )


def note(lock: int, state: str, socket_dir: Path) -> None:
    """What a successor needs to know: whether to wait, and what to clean up."""
    words = {"state": state, "keeper": os.getpid(), "socket_dir": str(socket_dir)}
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(words).encode(), 0)


def noted(lock: int) -> dict[str, object]:
    """The predecessor's note; empty if there is none or it was cut short."""
    try:
        words = json.loads(os.pread(lock, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return words if isinstance(words, dict) else {}


# --- the socket directory ---------------------------------------------------------------


def make_socket_dir(plan: ServerPlan) -> Path:
    """Private: a client that gets in is trusted."""
    path = Path(plan["socket_base"]) / f"{SOCKET_PREFIX}{os.urandom(6).hex()}"
    path.mkdir(mode=0o700)
    if plan["server_uid"] is not None:
        os.chown(path, plan["server_uid"], -1)
    return path


def remove_socket_dir(path: Path) -> None:
    """Removes a directory that make_socket_dir made, and nothing else."""
    if not path.name.startswith(SOCKET_PREFIX):
        return
    with contextlib.suppress(OSError):
        for item in path.iterdir():
            item.unlink()
        path.rmdir()


# --- the cluster ------------------------------------------------------------------------


def ensure_cluster(plan: ServerPlan, watch: SignalWatch) -> None:
    """Runs initdb beside the final place and renames, so a killed initdb leaves no half cluster."""
    home = Path(plan["home"])
    data, staging = home / "pgdata", home / "pgdata.new"
    if not (data / "PG_VERSION").exists():
        remove_tree(staging)
        staging.mkdir(mode=0o700)
        own(staging, plan["init_uid"])
        run_initdb([*plan["initdb"], str(staging)], watch)
        own(staging, plan["server_uid"])
        remove_tree(data)
        staging.rename(data)
    own(data, plan["server_uid"])
    clear_stale_pid(data)


def run_initdb(argv: list[str], watch: SignalWatch) -> None:
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    checks_left = int(INITDB_STOP_S / 0.05)
    while child.poll() is None:
        # Told to stop, we let it end: it takes a second, and a killed one would leave shared
        # memory behind that nobody removes.
        if watch.pause(0.05):
            time.sleep(0.05)
            checks_left -= 1
        if checks_left <= 0:
            os.killpg(child.pid, signal.SIGKILL)
    if watch.asked:
        raise Asked
    assert child.stderr is not None
    if child.returncode:
        raise Failed(
            f"initdb ended with {child.returncode}: {child.stderr.read().decode()[-2000:]}"
        )


def own(path: Path, uid: int | None) -> None:
    """Gives our own data directory to the user that the server runs as, if it has another owner."""
    if uid is None or path.stat().st_uid == uid:
        return
    for folder, _, files in os.walk(path):
        os.chown(folder, uid, uid)
        for name in files:
            os.chown(Path(folder) / name, uid, uid, follow_symlinks=False)


def clear_stale_pid(data: Path) -> None:
    """Removes the pid file of a dead server. PostgreSQL itself would take any running process
    that has got the same number since."""
    pid = read_pid(data)
    if pid is None:
        return
    try:
        alive = Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
    except OSError:
        alive = False
    if alive:
        raise Failed(f"a PostgreSQL server (process id {pid}) is already running on {data}")
    (data / "postmaster.pid").unlink()


def read_pid(data: Path) -> int | None:
    try:
        first = (data / "postmaster.pid").read_text().partition("\n")[0].strip()
    except FileNotFoundError:
        return None
    return int(first) if first.isdigit() else -1


def remove_tree(path: Path) -> None:
    """Bottom up, without shutil, whose import costs as much as the rest of the supervisor."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            (Path(folder) / name).unlink()
        for name in folders:
            (Path(folder) / name).rmdir()
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()


# --- the server -------------------------------------------------------------------------


def start_server(
    plan: ServerPlan, socket_dir: Path, lock: int, watch: SignalWatch
) -> subprocess.Popen[bytes]:
    """Returns when it accepts connections."""
    home = Path(plan["home"])
    log_path = home / "postgres.log"
    with log_path.open("wb") as log:
        server = subprocess.Popen(
            [*plan["server"], "-c", f"unix_socket_directories={socket_dir}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
        )
    try:
        await_ready(server, home / "pgdata", plan["start_timeout_s"], watch)
    except BaseException as fault:
        stop_server(server, plan["stop_timeout_s"])
        if isinstance(fault, Failed):
            raise Failed(f"{fault}; {log_path} ends with: {tail(log_path)}") from None
        raise
    return server


def await_ready(
    server: subprocess.Popen[bytes], data: Path, timeout_s: float, watch: SignalWatch
) -> None:
    """PostgreSQL writes `ready` into its pid file once it accepts connections."""
    for _ in range(int(timeout_s / POLL_S)):
        if server.poll() is not None:
            raise Failed(f"postgres ended with {server.returncode}")
        with contextlib.suppress(OSError):
            lines = (data / "postmaster.pid").read_text().splitlines()
            if len(lines) >= 8 and lines[7].strip() == "ready":
                return
        # Not pause(): a child's signal would return at once, and this is short anyway.
        time.sleep(POLL_S)
        if watch.pause(0):
            raise Asked
    raise Failed(f"postgres was not ready after {timeout_s:g} s")


def stop_server(server: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Fast shutdown (no client is waited for), then at once, then by force."""
    for number, wait_s in (
        (signal.SIGINT, timeout_s),
        (signal.SIGQUIT, 2.0),
        (signal.SIGKILL, 5.0),
    ):
        if server.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                server.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(wait_s)


def tail(path: Path) -> str:
    return path.read_bytes()[-1500:].decode(errors="replace").strip()


def _run() -> NoReturn:
    sys.exit(main(json.loads(sys.argv[1])))


if __name__ == "__main__":
    _run()
