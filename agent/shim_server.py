"""Forks shims: one process per agent that has imported what a shim needs, so that a job does not
wait for an interpreter to start.

Runs with the word SOCKET_FD, standard library only, in one thread. Each packet of the agent is one
byte and two descriptors, the shim's socket and its job's log; the forked child becomes that shim.
It may keep one job after another: its own socket brings the log of the next one.
End of file means that the agent is dead or needs no more shims. Shims outlive the server: each
hears the agent on a socket of its own, and ends when the agent does.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys

from agent.shim import ProcessShim, keep_forked, reap

FDS = 2
"""Of one request: SOCKET_FD and LOG_FD of a shim."""
WORDS_MAX = 64 * 1024


def serve(requests: socket.socket) -> None:
    """Until the agent is gone."""
    while True:
        word, fds, _, _ = socket.recv_fds(requests, 1, FDS)
        if not word:
            return
        if len(fds) == FDS:
            _fork(requests, fds[0], fds[1])
        for fd in fds:  # else the agent would not see the shim's death
            os.close(fd)


def _fork(requests: socket.socket, socket_fd: int, log_fd: int) -> None:
    try:
        child = os.fork()
    except OSError:
        return  # the agent sees its end closed, and starts the shim by itself
    if child:
        return
    code = 1
    try:
        requests.close()  # else the agent would not see the server's death
        shim = ProcessShim(socket_fd, log_fd)
        shim.hear = hear_of_another
        keep_forked(shim)
        code = 0
    except BaseException:  # a forked child must never return
        sys.excepthook(*sys.exc_info())
    os._exit(code)


def hear_of_another(socket_fd: int) -> tuple[bytes, int | None]:
    """Words of the agent, and the log of another job if they bring it."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, socket_fd)
    try:
        words, fds, _, _ = socket.recv_fds(link, WORDS_MAX, 1)
    except ConnectionError:
        return b"", None
    finally:
        link.detach()
    for fd in fds:
        os.set_inheritable(fd, False)
    return words, fds[0] if fds else None


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: reap())  # the call that waits goes on afterwards
    # What was imported is the same in all shims: the collector must not write to it.
    gc.disable()
    gc.freeze()
    serve(requests)
