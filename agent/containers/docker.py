"""The Docker API of Docker and of podman, as far as keeping a container needs it.

Standard library only: shims run without site-packages, so that one starts in a blink.
Every call opens a connection of its own, has a time-out, and ends in DockerError or an answer.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from urllib.parse import quote, urlencode, urlsplit

API = "/v1.40"
"""Docker 19.03 and podman 3 speak it; the first version with requests for GPUs."""
CALL_TIMEOUT_S = 20.0
"""Nobody hears the agent meanwhile: no more than what a lease outlasts a freeze by."""
MAKE_TIMEOUT_S = 120.0
"""For what computes nothing yet: on a busy VM a container is long in the making."""
PULL_SILENCE_S = 300.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
HEAD_BYTES_MAX = 64 * 1024
WORDS_MAX = 500
"""Characters of a registry's complaint that are passed on."""
_FRAME = 8
_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
_OF_USER = ("docker.sock", "podman/podman.sock")


class DockerError(Exception):
    """The runtime refused; `status` is HTTP's."""

    def __init__(self, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.status = status


class DockerDown(DockerError):
    """No answer: not there, or not in time."""


class DockerLate(DockerDown):
    """Not in time: it may still do what it was told."""


def find(environ: Mapping[str, str]) -> tuple[str, str]:
    """(address, "") of the runtime to use, or ("", why there is none)."""
    if said := environ.get("DOCKER_HOST", "").strip():
        parts = urlsplit(said)
        if (parts.scheme == "unix" and parts.path) or (parts.scheme == "tcp" and parts.hostname):
            return said, ""
        return "", f"DOCKER_HOST: got {said!r}, expected unix:///path or tcp://host:port"
    home = environ.get("XDG_RUNTIME_DIR", "")
    paths = [*_SOCKETS, *(f"{home}/{name}" for name in _OF_USER if home)]
    for path in paths:
        if os.path.exists(path):  # noqa: PTH110  # no pathlib here: see above
            return f"unix://{path}", ""
    looked = ", ".join(["DOCKER_HOST", *paths])
    return "", f"this VM has no container runtime (looked at {looked})"


class _Connection(http.client.HTTPConnection):
    """HTTP over whatever the address says."""

    def __init__(self, address: str, timeout_s: float) -> None:
        parts = urlsplit(address)
        super().__init__(parts.hostname or "docker", parts.port or 2375, timeout=timeout_s)
        self._path = parts.path if parts.scheme == "unix" else ""

    def connect(self) -> None:
        if not self._path:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Docker:
    """One runtime."""

    def __init__(self, address: str) -> None:
        self.address = address

    def info(self) -> dict[str, object]:
        """What the runtime says of itself."""
        found = self._call("GET", "/info")
        return found if isinstance(found, dict) else {}

    def pull(self, image: str, auth: str = "") -> None:
        """The image is here when it returns. A refusal is a line of a stream that began well."""
        headers = {"X-Registry-Auth": auth} if auth else {}
        name, tag = split_image(image)
        query = {"fromImage": name, **({"tag": tag} if tag else {})}
        connection = self._open(PULL_SILENCE_S)
        try:
            connection.request("POST", f"{API}/images/create?{urlencode(query)}", headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise DockerError(_words(answer.read(ANSWER_BYTES_MAX)), answer.status)
            _read_progress(answer)
        except (OSError, http.client.HTTPException) as error:
            raise self._down(error) from error
        finally:
            connection.close()

    def create(self, name: str, body: Mapping[str, object]) -> str:
        """The id of the new container; status 404: the image is not here."""
        path = f"/containers/create?{urlencode({'name': name})}"
        found = self._call("POST", path, body, MAKE_TIMEOUT_S)
        if not isinstance(found, dict) or not isinstance(found.get("Id"), str):
            raise DockerError(f"an answer without an id: {str(found)[:WORDS_MAX]}")
        return str(found["Id"])

    def tell(self, container: str, what: str) -> None:
        """What: start, pause, unpause, or kill?signal=NAME for its first process."""
        self._call("POST", f"/containers/{quote(container)}/{what}")

    def state(self, container: str) -> dict[str, object] | None:
        """Its `State`; None if there is no such container."""
        try:
            found = self._call("GET", f"/containers/{quote(container)}/json")
        except DockerError as error:
            if error.status == 404:
                return None
            raise
        state = found.get("State") if isinstance(found, dict) else None
        if not isinstance(state, dict):
            raise DockerError("an answer without a state")
        return state

    def remove(self, container: str) -> None:
        """Kill it if it runs, and leave nothing of it. Fine if it is gone already."""
        try:
            self._call("DELETE", f"/containers/{quote(container)}?force=true&v=true")
        except DockerError as error:
            if error.status != 404:
                raise

    def labelled(self, label: str) -> list[tuple[str, dict[str, str]]]:
        """(id, labels) of all containers with that label, also of ended ones."""
        query = urlencode({"all": "true", "filters": json.dumps({"label": [label]})})
        found = self._call("GET", f"/containers/json?{query}")
        rows = found if isinstance(found, list) else []
        return [(str(row["Id"]), dict(row.get("Labels") or {})) for row in rows]

    def attach(
        self, container: str, timeout_s: float = MAKE_TIMEOUT_S
    ) -> tuple[socket.socket, bytes]:
        """The stream of its output, and what of it has come with the answer. Only for one that has
        not ended: podman would make it anew, and forget its exit code."""
        path = f"{API}/containers/{quote(container)}/attach?stream=1&stdout=1&stderr=1"
        connection = self._open(timeout_s)
        try:
            connection.connect()
            stream = connection.sock
            assert stream is not None, "connect() opened it"
            words = f"POST {path} HTTP/1.1\r\nHost: docker\r\n"
            stream.sendall(f"{words}Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode())
            head, rest = _read_head(stream)
        except OSError as error:
            connection.close()
            raise self._down(error) from error
        status = int(head.split()[1])
        if status not in (101, 200):
            connection.close()
            raise DockerError(_words(rest), status)
        connection.sock = None  # it is the caller's now
        return stream, rest

    def _open(self, timeout_s: float) -> _Connection:
        return _Connection(self.address, timeout_s)

    def _down(self, error: Exception) -> DockerDown:
        kind = DockerLate if isinstance(error, TimeoutError) else DockerDown
        return kind(f"{self.address}: {str(error) or type(error).__name__}")

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> object:
        connection = self._open(timeout_s)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"{API}{path}", sent, headers)
            answer = connection.getresponse()
            data = answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise self._down(error) from error
        finally:
            connection.close()
        if answer.status == 304:
            return {}  # it is so already
        if not 200 <= answer.status < 300:
            raise DockerError(_words(data), answer.status)
        try:
            return json.loads(data) if data.strip() else {}
        except ValueError as error:
            raise DockerError(f"an answer that is not JSON: {data[:80]!r}") from error


class Frames:
    """Takes Docker's frames apart: a kind, three zeros, the length, then so many bytes."""

    def __init__(self) -> None:
        self.rest = b""
        self.taken = 0

    def feed(self, data: bytes) -> bytes:
        self.taken += len(data)
        self.rest += data
        out = []
        while len(self.rest) >= _FRAME:
            end = _FRAME + int.from_bytes(self.rest[4:_FRAME], "big")
            if len(self.rest) < end:
                break
            if not _is_podmans_own(self.rest[_FRAME:end]):
                out.append(self.rest[_FRAME:end])
            self.rest = self.rest[end:]
        return b"".join(out)


def _is_podmans_own(words: bytes) -> bool:
    """podman puts its own complaint into the stream when a container ends faster than it reads."""
    return b" unixpacket @" in words and words.rstrip().endswith(b"connection reset by peer")


def split_image(image: str) -> tuple[str, str]:
    """("name", "tag or digest"). Without either it is the newest: an API call without a tag would
    fetch all of them."""
    if "@" in image:
        return image, ""
    head, colon, tag = image.rpartition(":")
    if colon and "/" not in tag:
        return head, tag
    return image, "latest"


def _read_progress(answer: http.client.HTTPResponse) -> None:
    while line := answer.readline(HEAD_BYTES_MAX):
        try:
            said = json.loads(line)
        except ValueError:
            continue  # progress for people
        if isinstance(said, dict) and said.get("error"):
            raise DockerError(str(said["error"])[:WORDS_MAX])


def _read_head(stream: socket.socket) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = stream.recv(65536)
        if not more or len(data) > HEAD_BYTES_MAX:
            raise ConnectionError("the stream of the container ended before it began")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1"), rest


def _words(data: bytes) -> str:
    """The message of a refusal."""
    try:
        said = json.loads(data)
    except ValueError:
        said = None
    message = said.get("message") if isinstance(said, dict) else None
    return str(message or data.decode(errors="replace")).strip()[:WORDS_MAX]
