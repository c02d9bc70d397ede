"""Keeps one container: what keeper.py does for a process, through the Docker API.

The agent sends one JSON line (docker, name, image, auth, create, until), then the same words as
to any keeper. The container dies with the agent, also if that is killed; it is paused when the
agent has not been heard by the bus for too long; it is removed before its end is told.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
from collections.abc import Callable
from threading import Thread
from time import monotonic  # noqa: TID251  # the one clock that we share with the agent
from typing import TYPE_CHECKING

from agent.docker import Docker, DockerDown, DockerError, Frames
from agent.keeper import Keeper, catches, descendants, keep, send_signal
from agent.leftovers import KEEPER, whoami

if TYPE_CHECKING:
    import socket

ENDED = ("exited", "stopped", "dead")
"""Statuses whose exit code counts."""
UNSURE_MAX_S = 30.0
LOOK_AGAIN_S = 0.2
LOOK_EVERY_S = 0.5
"""How often a container that says nothing more is looked at."""
SILENT_LOOK_S = 5.0
"""How often one whose stream is open is looked at: the runtime may fail to close it."""
REMEMBER_AFTER_S = 1.0
"""podman mixes up the state of a container that is looked at while it starts and ends at once."""
DOWN_MAX_S = 60.0
"""A runtime that does not answer for so long is taken for dead, and the job with it."""
REMOVE_TRIES = 5
CHUNK = 64 * 1024
CANNOT_RUN = 125
"""As `docker run` ends when the fault is not the program's."""


class ContainerKeeper(Keeper):
    """The job is a container."""

    def __init__(self, socket_fd: int, log_fd: int) -> None:
        super().__init__(socket_fd, log_fd)
        os.set_blocking(log_fd, False)
        self.container = ""
        self.started = False
        self.doomed: signal.Signals | None = None
        """A signal that came before there was anything to send it to."""
        self.killed = False
        self.note = ""
        self.stream: socket.socket | None = None
        self.frames = Frames()
        self.pending = b""
        """Output that the agent has not taken yet; while there is some, no more is read."""
        self.look_at = 0.0
        self.silent_look_at = math.inf
        self.down_since: float | None = None
        self.unsure_since: float | None = None
        self.remember_at = math.inf
        self.first_pid, self.first_process = 0, -1
        self.waiting_fd = -1
        self.done = False

    # --- the start ----------------------------------------------------------------------

    def _begin(self, order: dict[str, object]) -> bool:
        self.docker = Docker(str(order["docker"]))
        try:
            self._create(order)
            self._hold()
            if self._is_off():
                return self._give_up()
            self._start(order)
        except DockerError as error:
            self._remove()
            self._say({"failed": CANNOT_RUN, "what": str(error)})
            return False
        self.started = True
        self.remember_at = monotonic() + REMEMBER_AFTER_S
        self.silent_look_at = monotonic() + SILENT_LOOK_S
        self._say({"started": 0})
        return True

    def _create(self, order: dict[str, object]) -> None:
        create, image = order["create"], str(order["image"])
        assert isinstance(create, dict), "the agent's own JSON"
        create["Labels"][KEEPER] = whoami()
        try:
            self.container = self._created(str(order["name"]), create)
            return
        except DockerError as error:
            if error.status != 404:
                raise
        try:
            self._meanwhile(lambda: self.docker.pull(image, str(order["auth"])))
        except DockerError as error:
            raise DockerError(f"image {image} cannot be pulled: {error}") from error
        if not self._is_off():
            self.container = self._created(str(order["name"]), create)

    def _created(self, name: str, create: dict[str, dict[str, object]]) -> str:
        try:
            return self.docker.create(name, create)
        except DockerError as error:
            if not _lacks_init(error, create):
                raise
        return self.docker.create(name, create)

    def _start(self, order: dict[str, object]) -> None:
        """podman misses its first process when it creates a container, Docker when it starts it."""
        self._attach()
        try:
            self.docker.start(self.container)
        except DockerError as error:
            create = order["create"]
            assert isinstance(create, dict), "the agent's own JSON"
            if not _lacks_init(error, create):
                raise
            self._detach()
            self.docker.remove(self.container)
            self.container = self.docker.create(str(order["name"]), create)
            self._attach()
            self.docker.start(self.container)

    def _meanwhile(self, work: Callable[[], None]) -> None:
        """Do something long, and hear the agent. Whoever is told to stop does not wait for it: the
        runtime may finish a pull for the next one."""
        trouble: list[DockerError] = []
        done, told = os.pipe()

        def run() -> None:
            try:
                work()
            except DockerError as error:
                trouble.append(error)
            os.write(told, b".")

        self.waiting_fd, self.done = done, False
        self.poll.register(done, select.POLLIN)
        Thread(target=run, daemon=True).start()
        self._obey_lines()
        while not self.done and not self._is_off():
            self._await()
            self._obey_lines()
        self.poll.unregister(done)
        if trouble:
            raise trouble[0]

    def _hold(self) -> None:
        """A job that must not compute now does not begin either."""
        while True:
            self._obey_lines()
            self._stop_or_go()
            if not self.stopped or self._is_off():
                return
            self._await()

    def _is_off(self) -> bool:
        return self.told_to_die or self.doomed is not None

    def _give_up(self) -> bool:
        self._remove()
        if self.doomed is not None:
            self._say({"signal": int(self.doomed)})
        return False

    def _remember_process(self) -> None:
        """A way to end it without the runtime."""
        self.remember_at = math.inf
        try:
            state = self.docker.state(self.container) or {}
            pid = state.get("Pid")
            if isinstance(pid, int) and pid > 0:
                self.first_pid, self.first_process = pid, os.pidfd_open(pid)
        except (DockerError, OSError):
            return  # it has ended, or its processes are not ours to see

    # --- the agent's words --------------------------------------------------------------

    def _pass_on(self, number: signal.Signals) -> None:
        if not self.started:
            if number in (signal.SIGTERM, signal.SIGKILL):
                self.doomed = number
        elif number == signal.SIGKILL:
            self.killed = True
        elif number == signal.SIGSTOP:
            self._remember_process()
            self._pause()
        elif number in (signal.SIGUSR1, signal.SIGUSR2):
            if not self.first_pid:
                self._remember_process()
            for pid in descendants(self.first_pid) if self.first_pid else ():
                if catches(pid, number):
                    send_signal(pid, number)
        else:
            call = self.docker.unpause if number == signal.SIGCONT else self._signal(number)
            try:
                call(self.container)
            except DockerError as error:
                self._unless_over(f"{number.name} did not reach the container: {error}")

    def _signal(self, number: signal.Signals) -> Callable[[str], None]:
        return lambda container: self.docker.kill(container, number.name)

    def _pause(self) -> None:
        try:
            self.docker.pause(self.container)
        except DockerError as error:
            try:
                state = self.docker.state(self.container) or {}
            except DockerError:
                state = {"Running": True}
            if state.get("Running") and not state.get("Paused"):
                # Somebody else may be given its work next: better lost than done twice.
                self.note = f"it could not be paused, so it was ended: {error}"
                self.killed = True

    def _unless_over(self, words: str) -> None:
        self.note = self.note or words

    # --- its output ---------------------------------------------------------------------

    def _attach(self) -> None:
        self.stream, came = self.docker.attach(self.container)
        self.stream.setblocking(False)
        self.frames = Frames()
        self.poll.register(self.stream.fileno(), select.POLLIN)
        self._pour(self.frames.feed(came))

    def _ready(self, fd: int) -> None:
        if fd == self.waiting_fd:
            self.done = True
        elif fd == self.log_fd:
            self._pour(b"")
        else:
            self._read_stream()

    def _read_stream(self) -> None:
        assert self.stream is not None, "it is registered while there is one"
        try:
            data = self.stream.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._detach()
        self._pour(self.frames.feed(data))

    def _detach(self) -> None:
        if self.stream is not None:
            self.poll.unregister(self.stream.fileno())
            self.stream.close()
            self.stream = None

    def _pour(self, data: bytes) -> None:
        """Into the agent's pipe. When that is full the container has to wait, not we."""
        full = bool(self.pending)
        self.pending += data
        try:
            while self.pending:
                self.pending = self.pending[os.write(self.log_fd, self.pending[:CHUNK]) :]
        except BlockingIOError:
            pass
        except OSError:
            self.pending = b""  # the agent is gone, and its socket says so as well
        if bool(self.pending) == full:
            return
        if self.pending:
            self.poll.register(self.log_fd, select.POLLOUT)
        else:
            self.poll.unregister(self.log_fd)
        if self.stream is not None:
            self.poll.modify(self.stream.fileno(), 0 if self.pending else select.POLLIN)

    # --- its end ------------------------------------------------------------------------

    def _ended(self) -> dict[str, object] | None:
        now = monotonic()
        if now >= self.remember_at:
            self._remember_process()
        if now < self._look_due():
            return None
        self.look_at, self.silent_look_at = now + LOOK_EVERY_S, now + SILENT_LOOK_S
        try:
            words = self._end_of_killed() if self.killed else self._look()
        except DockerDown as error:
            return self._without_runtime(now, error)
        except DockerError as error:
            self._unless_over(str(error))
            return None
        self.down_since = None
        return words

    def _look_due(self) -> float:
        """When its end is looked for next: soon if it has nothing more to say."""
        speaks = self.stream is not None or self.pending
        return self.silent_look_at if speaks and not self.killed else self.look_at

    def _end_of_killed(self) -> dict[str, object]:
        # Before the runtime does: it may thaw a paused one, and must find nobody who goes on.
        self._kill_processes()
        self.docker.remove(self.container)
        if self.stream is not None:
            self._drain()
        return {"signal": int(signal.SIGKILL), "note": self.note}

    def _drain(self) -> None:
        """What it said before it died, as far as it is here."""
        while self.stream is not None and not self.pending:
            before = self.frames.taken
            self._read_stream()
            if self.frames.taken == before:
                return

    def _look(self) -> dict[str, object] | None:
        state = self.docker.state(self.container)
        if state is None:
            return {"signal": int(signal.SIGKILL), "note": "somebody removed its container"}
        if state.get("Running") or state.get("Paused"):
            if self.stream is None and not self.pending:
                # It closed its streams, or the runtime was started anew: there is more to hear.
                self._attach()
            return None
        code: object = state.get("ExitCode")
        if state.get("Status") not in ENDED:
            code = self.docker.told_exit(self.container)
            if code is None:
                return self._not_yet(str(state.get("Status")))
        self._drain()
        if self.pending:
            return None  # the agent takes it first
        self._remove()
        words: dict[str, object] = {"exit": code if isinstance(code, int) else CANNOT_RUN}
        if state.get("OOMKilled"):
            words["note"] = "it was out of memory"
        return words

    def _not_yet(self, status: str) -> dict[str, object] | None:
        """It is about to end. podman says `created` for a moment, with an exit code of 0 that means
        nothing: taken for one, it would make a success of any end. Looked at seldom, since each
        look may hold it up; what is never told is a loss, not a success."""
        now = monotonic()
        self.unsure_since = self.unsure_since or now
        unsure_s = now - self.unsure_since
        if unsure_s < UNSURE_MAX_S:
            self.look_at = now + max(LOOK_AGAIN_S, unsure_s)
            return None
        self._remove()
        return {"lost": f"the container runtime does not say how it ended (status {status})"}

    def _without_runtime(self, now: float, error: DockerDown) -> dict[str, object] | None:
        self.down_since = self.down_since or now
        if now - self.down_since < DOWN_MAX_S:
            return None
        self._kill_processes()
        return {"lost": f"the container runtime does not answer: {error}"}

    def _kill_processes(self) -> None:
        """Without the runtime, where its processes are ours to see."""
        if self.first_process < 0:
            return
        try:
            signal.pidfd_send_signal(self.first_process, 0)  # the PID is still its own
            for pid in [*descendants(self.first_pid), self.first_pid]:
                send_signal(pid, signal.SIGKILL)
        except OSError:
            return  # it has ended

    def _destroy(self) -> None:
        self._remove()

    def _remove(self) -> None:
        for _ in range(REMOVE_TRIES if self.container else 0):
            try:
                self.docker.remove(self.container)
                return
            except DockerError:
                # Whatever stays is found by its label when the next agent starts.
                self._kill_processes()

    def _patience_ms(self) -> int | None:
        patience = super()._patience_ms()
        next_at = min(self.remember_at, self._look_due() if self.started else math.inf)
        if next_at == math.inf:
            return patience
        look_ms = max(0, int(1000 * (next_at - monotonic())) + 1)
        return look_ms if patience is None else min(patience, look_ms)


def _lacks_init(error: DockerError, create: dict[str, dict[str, object]]) -> bool:
    """Whether the runtime has no program for a first process. Then it goes without: SIGTERM only
    reaches programs that ask for it. From now on `create` says so."""
    host = create["HostConfig"]
    known = any(name in str(error) for name in ("docker-init", "container-init", "init binary"))
    if not known or not host.get("Init"):
        return False
    host["Init"] = False
    return True


def main() -> None:
    keep(ContainerKeeper, sys.argv[1:4])
