"""Keeps one job: starts it, passes signals on, and leaves nothing of it behind.

Runs with the words SOCKET_FD LOG_FD PARENT_PID, or forked by the shim server; standard library
only. The shim says {"shim": its pid}. The agent sends one JSON line (argv, env, cwd, box, leave,
memory_max, until), then signal names, one per line; the shim answers with JSON lines: {"pid": n},
then {"started": true} or {"failed": errno, "what": …}, then {"exit": n} or {"signal": n}. End of
file on the socket means that the agent is dead, even by SIGKILL: the job dies at once. The command
runs only after its pid is told: if the shim is killed, the agent knows which process group to end,
or there is none.

A shim that the server forked says "again" with its last words if nothing of its job is left: the
agent may then send one byte with the descriptor of another job's log, and all begins anew.

`until`, renewed by lines `UNTIL seconds` on the monotonic clock, is how long the job may compute
without a word: the agent moves it with each heartbeat that the bus confirms. Past it the shim
freezes the job by itself, because an agent that hangs cannot, and the job may soon be given to
another VM. A later `until` lifts that freeze; one that the agent ordered (STOP) is lifted by CONT.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import select
import signal
import sys
import time
from time import monotonic  # noqa: TID251  # the one clock that we share with the agent

from agent.sandbox.enter import enter, execute
from agent.sandbox.memory import MemoryWatch, leave_cgroup

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_ROUNDS = 100
KILL_PAUSE_MAX_S = 0.05
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def descendants(root: int = 0) -> list[int]:
    """All processes below `root`, or below us. Orphans come to us because we are the subreaper, so
    a daemon that left its group and session is found too."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # pathlib would double our start-up time
        if name.isdigit():
            parent, state = parent_and_state(name)
            if state not in ("Z", "X", ""):
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    ahead = [root or os.getpid()]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def stat_of(pid: str) -> list[str]:
    """What /proc says of a process after its name, its state first; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # no pathlib here
            # The name in parentheses may itself contain spaces and parentheses.
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def parent_and_state(pid: str) -> tuple[int, str]:
    state, parent, *_ = stat_of(pid) or ("", "0")
    return int(parent), state


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal: without one, most would end it."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123  # no pathlib here
            lines = file.read().splitlines()
    except OSError:
        return False  # it ended while we looked
    masks = [line.split()[1] for line in lines if line.startswith(b"SigCgt:")]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # already gone, or a set-user-id program that we may not touch


def reap() -> tuple[dict[int, int], bool]:
    """Wait statuses of all children that have ended, and whether there are others. A subreaper
    without children has no descendants: orphans would be its children."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def kill_all() -> bool:
    """SIGKILL until nothing is left below us, and whether that is so; bounded, because a process in
    the kernel's hands may not die."""
    pause_s = 0.001
    for _ in range(KILL_ROUNDS):
        _, others = reap()
        if not others:
            return True
        for pid in descendants():
            send_signal(pid, signal.SIGKILL)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, KILL_PAUSE_MAX_S)
    return False


def hear(socket_fd: int) -> tuple[bytes, int | None]:
    """What a shim that is a process of its own is told after its last words: nothing but the end
    of file counts."""
    try:
        return os.read(socket_fd, 65536), None
    except ConnectionError:
        return b"", None


class Shim:
    """One job from start to end. What is kept, a process or a container, is for the heirs."""

    def __init__(self, socket_fd: int, log_fd: int) -> None:
        self.socket_fd, self.log_fd = socket_fd, log_fd
        self.hear = hear
        """Words of the agent, and perhaps the log of another job: the last thing that it sent."""
        for fd in (socket_fd, log_fd):
            # Not for the job: it could speak in our name, and would hide our death.
            os.set_inheritable(fd, False)
        self.buffer = b""
        self.until = math.inf
        self.held = False
        """The agent said STOP."""
        self.stopped = False
        self.poll = select.poll()
        self.wake_fd, wake_in = os.pipe()
        for fd in (self.wake_fd, wake_in):
            os.set_blocking(fd, False)
        self.poll.register(self.socket_fd, select.POLLIN)
        self.poll.register(self.wake_fd, select.POLLIN)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        self.told_to_die = False
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._die)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)

    def _die(self, *_: object) -> None:
        self.told_to_die = True

    def run(self) -> bool:
        """One job, and whether there is another one."""
        self._say({"shim": os.getpid()})
        line = self._line()
        if line is None:
            return False
        order = json.loads(line)
        if order["until"] is not None:
            self.until = order["until"]
        if self._begin(order):
            words = self._watch()
            if words is None:
                return False
            self._say(words)
        return self._see_off()

    def _see_off(self) -> bool:
        """Until the agent has read our last words and hangs up, or has another job, whose log comes
        with its word. If we went before, a word of its own that crosses them would break the
        connection, and they would be lost."""
        if self.log_fd >= 0:
            os.close(self.log_fd)  # the agent waits for its end first
            self.log_fd = -1
        while not self.told_to_die:
            words, log_fd = self.hear(self.socket_fd)
            if log_fd is not None:  # whatever came before it was meant for the job that ended
                self.log_fd, self.buffer = log_fd, b""
                self.until, self.held, self.stopped = math.inf, False, False
                return True
            if not words:
                break
        return False

    def _watch(self) -> dict[str, object] | None:
        """How the job ended; None if the agent died first."""
        while True:
            words = self._ended()
            if words is not None:
                return words
            if self.told_to_die:
                self._destroy()
                return None
            self._obey_lines()
            self._stop_or_go()
            self._await()

    def _await(self) -> None:
        """Until something happens, or it is time to freeze."""
        for fd, _ in self.poll.poll(self._poll_wait_ms()):
            if fd == self.wake_fd:
                os.read(self.wake_fd, 4096)
            elif fd != self.socket_fd:
                self._ready(fd)
            elif not self._read():
                self.told_to_die = True

    # --- what heirs say of their job ----------------------------------------------------

    def _begin(self, order: dict[str, object]) -> bool:
        """Start it and say so; False if it could not be, which is said too."""
        raise NotImplementedError

    def _ended(self) -> dict[str, object] | None:
        """The words for its end, once nothing of it is left."""
        raise NotImplementedError

    def _destroy(self) -> None:
        """Leave nothing of it, at once."""
        raise NotImplementedError

    def _pass_on(self, number: signal.Signals) -> None:
        raise NotImplementedError

    def _ready(self, fd: int) -> None:
        """A file of the heir's own has something."""
        raise AssertionError(f"nobody asked for {fd}")

    # --- the agent's words --------------------------------------------------------------

    def _read(self) -> bool:
        """False at the end of file."""
        try:
            data = os.read(self.socket_fd, 65536)
        except ConnectionError:
            return False
        self.buffer += data
        return bool(data)

    def _line(self) -> str | None:
        while b"\n" not in self.buffer:
            if self.told_to_die or not self._read():
                return None
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def _obey_lines(self) -> None:
        while b"\n" in self.buffer:
            line, _, self.buffer = self.buffer.partition(b"\n")
            word, _, value = line.decode().partition(" ")
            match word:
                case "UNTIL":
                    self.until = float(value)
                case "STOP" | "CONT":
                    self.held = word == "STOP"
                    self._stop_or_go()
                case _:
                    self._pass_on(signal.Signals[f"SIG{word}"])

    def _stop_or_go(self) -> None:
        """Frozen while the agent says so, or has not been heard by the bus for too long."""
        wanted = self.held or monotonic() >= self.until
        if wanted != self.stopped:
            self.stopped = wanted
            self._pass_on(signal.SIGSTOP if wanted else signal.SIGCONT)

    def _poll_wait_ms(self) -> int | None:
        if self.stopped or self.until == math.inf:
            return None
        return max(0, math.ceil(1000 * (self.until - monotonic())))

    def _say(self, words: dict[str, object]) -> None:
        try:
            os.write(self.socket_fd, json.dumps(words).encode() + b"\n")
        except (BrokenPipeError, ConnectionError):
            return  # the agent is gone: there is nobody to tell


class ProcessShim(Shim):
    """The job is a process, its group, and whatever it leaves behind."""

    job = 0
    memory = MemoryWatch(0)

    def _ended(self) -> dict[str, object] | None:
        if self.memory.is_over(descendants):
            self._pass_on(signal.SIGKILL)
        ended, _ = reap()
        if self.job not in ended:
            return None
        about = {"again": kill_all(), "note": self.memory.note}
        status = ended[self.job]
        if os.WIFSIGNALED(status):
            return {"signal": os.WTERMSIG(status), **about}
        return {"exit": os.WEXITSTATUS(status), **about}

    def _destroy(self) -> None:
        kill_all()

    def _pass_on(self, number: signal.Signals) -> None:
        if number == signal.SIGTERM:
            # The group only: helpers in other sessions are the job's own to end.
            try:
                os.killpg(self.job, number)
            except (ProcessLookupError, PermissionError):
                return
            return
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            for pid in descendants():
                if catches(pid, number):
                    send_signal(pid, number)
            return
        # Twice, so that what was forked during the first walk is met by the second.
        for _ in range(2):
            for pid in descendants():
                send_signal(pid, number)

    def _begin(self, order: dict[str, object]) -> bool:
        error_out, error_in = os.pipe()
        go_out, go_in = os.pipe()
        self.job = os.fork()
        if self.job == 0:
            os.close(go_in)  # the child's own copy would hide the shim's death
            self._become(order, error_in, go_out)
        self._say({"pid": self.job})
        os.write(go_in, b".")  # go_out is still open here, so a child that has failed does no harm
        for fd in (error_in, go_in, go_out, self.log_fd):
            os.close(fd)
        self.log_fd = -1
        failure = b""
        while chunk := os.read(error_out, 4096):
            failure += chunk
        os.close(error_out)
        if failure:
            os.waitpid(self.job, 0)
            self._say(json.loads(failure))
            return False
        self._say({"started": True})
        self.memory = MemoryWatch(int(str(order["memory_max"])))
        for procs in order["leave"]:  # type: ignore[attr-defined]  # the agent's own JSON
            leave_cgroup(procs)
        return True

    def _poll_wait_ms(self) -> int | None:
        return self.memory.poll_wait_ms(super()._poll_wait_ms())

    def _become(self, order: dict[str, object], error_in: int, go_out: int) -> None:
        """In the child: turn into the job, or tell why not. Never returns."""
        what = "cwd"
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            # Ignored signals survive exec: a job without SIGPIPE hangs on for ever in `yes | head`.
            for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(self.log_fd, 1)
            os.dup2(self.log_fd, 2)
            what = "sandbox"
            enter(order["box"])  # type: ignore[arg-type]  # the agent's own JSON
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has cleared it
            what = "cwd"
            os.chdir(str(order["cwd"]))
            what = "exec"
            if not os.read(go_out, 1):
                os._exit(127)  # the shim was killed before it told the pid
            execute(order["argv"], order["env"])  # type: ignore[arg-type]  # the agent's own JSON
        except OSError as error:
            os.write(error_in, json.dumps({"failed": error.errno, "what": what}).encode())
        except BaseException as error:  # a forked child must never return
            text = {"failed": errno.EINVAL, "what": f"{type(error).__name__}: {error}"}
            os.write(error_in, json.dumps(text).encode()[:4096])
        os._exit(127)


def keep(heir: type[Shim], words: list[str]) -> None:
    """The life of a shim: SOCKET_FD LOG_FD PARENT_PID."""
    socket_fd, log_fd, parent = (int(word) for word in words)
    shim = heir(socket_fd, log_fd)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # SIGTERM and not SIGKILL: we must outlive the agent for the moment it takes to clean up.
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:
        shim.run()


def keep_forked(shim: Shim) -> None:
    """The life of a shim that the shim server forked: only its socket says that the agent died, so
    that it outlives the server."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    while shim.run():
        pass


def main() -> None:
    keep(ProcessShim, sys.argv[1:4])
