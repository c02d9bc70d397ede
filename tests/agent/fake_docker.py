"""A small Docker: the calls that a shim makes, for what a real runtime does not do on demand."""

from __future__ import annotations

import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

DEADLINE_S = 60.0


class FakeDocker:
    """One container at a time; it says `output` and ends with `exit_code` once it is started, or
    when it is removed."""

    def __init__(self, socket_file: Path) -> None:
        self.address = f"unix://{socket_file}"
        self.images = {"here"}
        self.pull_says: list[dict[str, object]] = [{"status": "Pulling"}]
        self.auth: list[str | None] = []
        self.created: list[dict[str, Any]] = []
        self.no_init_at = ""
        """`create` or `start` refuses containers with an init."""
        self.pause_fails = False
        self.output, self.exit_code = b"hello\n", 0
        self.runs_on = False
        self.unsure = 0
        """So many answers about a container that has ended know no exit code yet."""
        self.lags = 0
        """So many say that it still runs."""
        self.dies_at_start = False
        """The API, not the container."""
        self.exists, self.running = False, False
        self.begun, self.forgot = False, False
        self.gone, self.started = threading.Event(), threading.Event()
        fake = self

        class Handler(_Handler):
            docker = fake

        class Server(ThreadingMixIn, UnixStreamServer):
            daemon_threads = True

        self._server = Server(str(socket_file), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> FakeDocker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gone.set()
        self.started.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    docker: FakeDocker

    def address_string(self) -> str:
        return "unix"

    def do_GET(self) -> None:
        if not self.docker.exists:
            self._answer(404, {"message": "no such container"})
            return
        status, code = self._status()
        words = {"Running": status == "running", "Status": status, "Pid": 0, "ExitCode": code}
        self._answer(200, {"State": words})

    def _status(self) -> tuple[str, int]:
        docker = self.docker
        if docker.running:
            return "running", 0
        if docker.lags:
            docker.lags -= 1
            return "running", 0
        if docker.unsure or docker.forgot:
            docker.unsure = max(0, docker.unsure - 1)
            return "created", 0
        return "exited", docker.exit_code

    def do_DELETE(self) -> None:
        self.docker.exists = self.docker.running = False
        self.docker.gone.set()
        self._answer(204, None)

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        match parts.path.rpartition("/")[2], "images" in parts.path:
            case "create", True:
                self._pull(query)
            case "create", False:
                self._create(body)
            case "attach", _:
                self._attach()
            case "start", _:
                self._start()
            case "pause", _ if self.docker.pause_fails:
                self._answer(500, {"message": "cannot freeze"})
            case _:
                self._answer(204, None)

    def _pull(self, query: dict[str, str]) -> None:
        self.docker.auth.append(self.headers.get("X-Registry-Auth"))
        self.docker.images.add(f"{query['fromImage']}:{query['tag']}")
        lines = "".join(json.dumps(line) + "\r\n" for line in self.docker.pull_says)
        self._answer(200, lines.encode())

    def _create(self, body: dict[str, Any]) -> None:
        if body["Image"] not in self.docker.images:
            self._answer(404, {"message": "no such image"})
        elif self._refused("create", body):
            self._answer(500, {"message": "container-init binary not found on the host"})
        else:
            self.docker.created.append(body)
            self.docker.exists, self.docker.begun = True, False
            self.docker.gone.clear()
            self._answer(201, {"Id": "c0ffee"})

    def _start(self) -> None:
        if self._refused("start", self.docker.created[-1]):
            self._answer(400, {"message": 'exec: "docker-init": executable file not found'})
            return
        if self.docker.dies_at_start:
            return  # without a word
        self.docker.running = self.docker.begun = True
        # Before the answer: its reader may be gone before we have said all of it.
        self.docker.started.set()
        self._answer(204, None)

    def _refused(self, where: str, body: dict[str, Any]) -> bool:
        return self.docker.no_init_at == where and bool(body["HostConfig"]["Init"])

    def _attach(self) -> None:
        stream: socket.socket = self.request
        number = len(self.docker.created)
        # As podman does it: a container that is attached to after its end is made anew.
        self.docker.forgot |= self.docker.begun and not self.docker.running
        stream.sendall(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n")
        self.docker.started.wait(DEADLINE_S)
        if number < len(self.docker.created):
            return  # that one never ran
        data = self.docker.output
        for at in range(0, len(data), 3):
            piece = data[at : at + 3]
            stream.sendall(struct.pack(">BxxxL", 1 + at % 2, len(piece)) + piece)
        if self.docker.runs_on:
            self.docker.gone.wait(DEADLINE_S)
        self.docker.running = False

    def _answer(self, status: int, body: object) -> None:
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if data:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""
