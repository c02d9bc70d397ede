"""Keeps one container: what shim.py does for a process, through the Docker API.

The agent sends one JSON line (docker, name, image, auth, create, until), then the same words as
to any shim. The container dies with the agent, also if that is killed; it is paused when the
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

from agent.containers.docker import (
    CALL_TIMEOUT_S,
    MAKE_TIMEOUT_S,
    Docker,
    DockerDown,
    DockerError,
    DockerLate,
    Frames,
)
from agent.containers.first_process import FirstProcess
from agent.containers.leftovers import SHIM, whoami
from agent.shim import Shim, keep

if TYPE_CHECKING:
    import socket

ENDED = ("exited", "stopped", "dead")
"""Statuses whose exit code counts."""
UNSURE_MAX_S = 30.0
"""A runtime that has not said how a container ended for so long will never say it."""
LOOK_AGAIN_S = 0.05
"""Of one whose stream has ended: its own end is a moment later."""
LOOK_EVERY_S = 0.5
"""While the runtime does not do what it is told."""
SILENT_LOOK_S = 5.0
"""How often one whose stream is open is looked at: the runtime may fail to close it."""
HEAR_AGAIN_S = 2.0
"""Who still runs so long after its stream has ended is attached to again."""
REMEMBER_AFTER_S = 1.0
"""What ends sooner needs no way to be ended without the runtime."""
DOWN_MAX_S = 60.0
"""A runtime that does not answer for so long is taken for dead, and the job with it."""
REMOVE_TRIES = 5
CHUNK = 64 * 1024
CANNOT_RUN = 125
"""As `docker run` ends when the fault is not the program's."""


class ContainerShim(Shim):
    """The job is a container."""

    def __init__(self, socket_fd: int, log_fd: int) -> None:
        super().__init__(socket_fd, log_fd)
        os.set_blocking(log_fd, False)
        self.container = ""
        self.started = False
        self.ending_signal: signal.Signals | None = None
        """A signal that came before there was anything to send it to."""
        self.killed = False
        self.note = ""
        self.stream: socket.socket | None = None
        self.frames = Frames()
        self.pending = b""
        """Output that the agent has not taken yet; while there is some, no more is read."""
        self.look_at = math.inf
        self.quiet_since = 0.0
        """When its stream ended."""
        self.over = False
        """It was seen to have ended, and has said nothing since."""
        self.down_since: float | None = None
        self.unsure_since: float | None = None
        self.remember_at = math.inf
        self.first = FirstProcess()
        self.waiting_fd = -1
        self.done = False

    # --- the start ----------------------------------------------------------------------

    def _begin(self, order: dict[str, object]) -> bool:
        self.docker = Docker(str(order["docker"]))
        try:
            self._create(order)
            if not self._is_off():
                self._attach()
                self._hold()
            if self._is_off():
                return self._give_up()
            self._start(order)
        except DockerError as error:
            # A runtime that began to make it and then fell silent is no fault of the image.
            lost = isinstance(error, DockerDown) and bool(self.container)
            self._remove()
            words = f"the container runtime does not answer: {error}"
            self._say({"lost": words} if lost else {"failed": CANNOT_RUN, "what": str(error)})
            return False
        self.started = True
        self.remember_at = monotonic() + REMEMBER_AFTER_S
        # It may have ended already.
        self.look_at = 0.0 if self.stream is None else monotonic() + SILENT_LOOK_S
        self._say({"started": True})
        return True

    def _create(self, order: dict[str, object]) -> None:
        create, image = order["create"], str(order["image"])
        assert isinstance(create, dict), "the agent's own JSON"
        create["Labels"][SHIM] = whoami()
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
        except DockerLate:
            self.container = name  # it may come yet, and is to be removed
            raise
        except DockerError as error:
            if not _lacks_init(error, create):
                raise
        return self.docker.create(name, create)

    def _start(self, order: dict[str, object]) -> None:
        """podman misses its first process when it creates a container, Docker when it starts it."""
        try:
            self.docker.tell(self.container, "start")
        except DockerError as error:
            create = order["create"]
            assert isinstance(create, dict), "the agent's own JSON"
            if not _lacks_init(error, create):
                raise
            self._detach()
            self.docker.remove(self.container)
            self.container = self.docker.create(str(order["name"]), create)
            self._attach()
            self.docker.tell(self.container, "start")

    def _meanwhile(self, work: Callable[[], None]) -> None:
        """Do something long, and hear the agent. A job that is told to stop does not wait for it:
        the runtime may finish a pull for the next one."""
        errors: list[DockerError] = []
        done, told = os.pipe()

        def run() -> None:
            try:
                work()
            except DockerError as error:
                errors.append(error)
            os.write(told, b".")

        self.waiting_fd, self.done = done, False
        self.poll.register(done, select.POLLIN)
        Thread(target=run, daemon=True).start()
        self._obey_lines()
        while not self.done and not self._is_off():
            self._await()
            self._obey_lines()
        self.poll.unregister(done)
        if errors:
            raise errors[0]

    def _hold(self) -> None:
        """A job that must not compute now does not begin either."""
        while True:
            self._obey_lines()
            self._stop_or_go()
            if not self.stopped or self._is_off():
                return
            self._await()

    def _is_off(self) -> bool:
        return self.told_to_die or self.ending_signal is not None

    def _give_up(self) -> bool:
        self._remove()
        if self.ending_signal is not None:
            self._say({"signal": int(self.ending_signal)})
        return False

    def _remember_process(self) -> None:
        """A way to end it without the runtime."""
        self.remember_at = math.inf
        if self.first.known:
            return
        try:
            state = self.docker.state(self.container) or {}
            self.first.remember(state.get("Pid"), self.container)
        except DockerError:
            return  # its end is looked for all the same

    # --- the agent's words --------------------------------------------------------------

    def _pass_on(self, number: signal.Signals) -> None:
        if not self.started:
            if number in (signal.SIGTERM, signal.SIGKILL):
                self.ending_signal = number
        elif number == signal.SIGKILL:
            self.killed, self.look_at = True, 0.0
        elif number == signal.SIGSTOP:
            self._remember_process()
            self._pause()
        elif number in (signal.SIGUSR1, signal.SIGUSR2):
            self._remember_process()
            self.first.tell_listeners(number)
        else:
            what = "unpause" if number == signal.SIGCONT else f"kill?signal={number.name}"
            try:
                self.docker.tell(self.container, what)
            except DockerError as error:
                self._unless_over(f"{number.name} did not reach the container: {error}")

    def _pause(self) -> None:
        try:
            self.docker.tell(self.container, "pause")
        except DockerError as error:
            try:
                state = self.docker.state(self.container) or {}
            except DockerError:
                state = {"Running": True}
            if state.get("Running") and not state.get("Paused"):
                # Somebody else may be given its work next: better lost than done twice.
                self.note = f"it could not be paused, so it was ended: {error}"
                self.killed, self.look_at = True, 0.0

    def _unless_over(self, words: str) -> None:
        self.note = self.note or words

    # --- its output ---------------------------------------------------------------------

    def _attach(self, timeout_s: float = MAKE_TIMEOUT_S) -> None:
        self.stream, came = self.docker.attach(self.container, timeout_s)
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
        self.over = False
        if not data:
            self._detach()
        self._pour(self.frames.feed(data))

    def _detach(self) -> None:
        if self.stream is not None:
            self.poll.unregister(self.stream.fileno())
            self.stream.close()
            self.stream = None
            self.quiet_since, self.look_at = monotonic(), 0.0

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
            if self.stream is None:
                self.look_at = 0.0
        if self.stream is not None:
            self.poll.modify(self.stream.fileno(), 0 if self.pending else select.POLLIN)

    # --- its end ------------------------------------------------------------------------

    def _ended(self) -> dict[str, object] | None:
        now = monotonic()
        if now >= self.remember_at:
            self._remember_process()
        if now < self.look_at:
            return None
        self.look_at = now + self._pause_s(now)
        try:
            words = self._end_of_killed() if self.killed else self._look(now)
        except DockerError as error:
            return self._without_runtime(now, error)
        self.down_since = None
        return words

    def _pause_s(self, now: float) -> float:
        """Until the next look: soon after it fell silent, then ever more seldom."""
        if self.killed or self.down_since is not None:
            return LOOK_EVERY_S
        if self.stream is not None or self.pending:
            return SILENT_LOOK_S
        return min(SILENT_LOOK_S, max(LOOK_AGAIN_S, now - self.quiet_since))

    def _end_of_killed(self) -> dict[str, object]:
        # Before the runtime does: it may thaw a paused one, and must find nobody who goes on.
        self.first.kill_all()
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

    def _look(self, now: float) -> dict[str, object] | None:
        state = self.docker.state(self.container)
        if state is None:
            return {"signal": int(signal.SIGKILL), "note": "somebody removed its container"}
        if state.get("Running") or state.get("Paused"):
            if not self.first.has_ended():
                self.unsure_since = None
                if not state.get("Paused"):
                    self._hear_again(now)
                return None
            return self._unknown(now, "running, but its process is gone")
        code = state.get("ExitCode")
        if state.get("Status") not in ENDED or not isinstance(code, int):
            # Never taken for an exit code: podman says 0 for one that has not run.
            return self._unknown(now, str(state.get("Status")))
        self._drain()
        if self._speaks_on():
            return None
        self._remove()
        note = {"note": "it was out of memory"} if state.get("OOMKilled") else {}
        return {"exit": code, **note}

    def _speaks_on(self) -> bool:
        """Whether its last words are on their way: the agent takes them first. A stream that says
        nothing more and does not end is waited for until the next look."""
        late, self.over = self.over, True
        return bool(self.pending) or (self.stream is not None and not late)

    def _unknown(self, now: float, status: str) -> dict[str, object] | None:
        """It has ended, or is about to, and the runtime does not say how: a loss, no success."""
        self.unsure_since = self.unsure_since or now
        if now - self.unsure_since < UNSURE_MAX_S:
            return None
        self._remove()
        return {"lost": f"the container runtime lost the exit code (status: {status})"}

    def _hear_again(self, now: float) -> None:
        """The runtime was started anew: there is more to hear. podman makes a container anew if it
        is attached to after its end, and forgets how it ended; so it is attached to only while
        its first process is stopped, and cannot end."""
        if self.stream is not None or self.pending or now - self.quiet_since < HEAR_AGAIN_S:
            return
        self._remember_process()
        try:
            if self.first.halt():
                self._attach(CALL_TIMEOUT_S)
        except DockerError as error:
            self._unless_over(f"its output is not heard any more: {error}")
        finally:
            self.first.send(signal.SIGCONT)

    def _without_runtime(self, now: float, error: DockerError) -> dict[str, object] | None:
        self.down_since = self.down_since or now
        if now - self.down_since < DOWN_MAX_S:
            return None
        self.first.kill_all()
        return {"lost": f"the container runtime does not answer: {error}"}

    def _destroy(self) -> None:
        self._remove()

    def _remove(self) -> None:
        for _ in range(REMOVE_TRIES if self.container else 0):
            try:
                self.docker.remove(self.container)
                return
            except DockerError:
                # Whatever stays is found by its label when the next agent starts.
                self.first.kill_all()

    def _poll_wait_ms(self) -> int | None:
        wait_ms = super()._poll_wait_ms()
        next_at = min(self.remember_at, self.look_at) if self.started else math.inf
        if next_at == math.inf:
            return wait_ms
        look_ms = max(0, int(1000 * (next_at - monotonic())) + 1)
        return look_ms if wait_ms is None else min(wait_ms, look_ms)


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
    keep(ContainerShim, sys.argv[1:4])
