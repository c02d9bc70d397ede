"""A small Google Cloud Storage: the JSON API calls that the store makes, on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit


class FakeGcs:
    """Objects by name. `fail_next` answers are 503; `lose_next` store but answer 503; `take_most`
    is how much of a piece of a resumable upload is taken; `spoil` stores other bytes."""

    def __init__(self, page: int = 1000) -> None:
        self.objects: dict[str, bytes] = {}
        self.page = page
        self.fail_next = 0
        self.lose_next = 0
        self.forbid = False
        self.take_most = 1 << 30
        self.spoil = False
        self.sessions: dict[str, bytearray] = {}
        self.requests: list[str] = []
        fake = self

        class Handler(_Handler):
            gcs = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeGcs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    gcs: FakeGcs
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self._refused():
            return
        _, _, name = parts.path.partition("/o/")
        if name:
            self._media(unquote(name))
        else:
            self._list(query)

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self._refused():
            return
        name = query["name"]
        if query["uploadType"] == "resumable":
            session = f"{self.gcs.url}/session/{len(self.gcs.sessions)}/{quote(name, safe='')}"
            self.gcs.sessions[session] = bytearray()
            self._answer(200, b"{}", {"Location": session})
            return
        if query.get("ifGenerationMatch") == "0" and name in self.gcs.objects:
            self._answer(412, b"{}")
            return
        self._stored(name, data)

    def do_PUT(self) -> None:
        """A piece of a resumable upload: bytes that are here already are ignored."""
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self._refused():
            return
        session = f"{self.gcs.url}{self.path}"
        have = self.gcs.sessions[session]
        span, _, total = self.headers["Content-Range"].removeprefix("bytes ").partition("/")
        first = int(span.partition("-")[0])
        have += data[len(have) - first :][: self.gcs.take_most]
        if total != "*" and len(have) == int(total):
            self._stored(unquote(self.path.rpartition("/")[2]), bytes(have))
            return
        if self.gcs.lose_next:
            self.gcs.lose_next -= 1
            self._answer(503, b"lost")
            return
        self._answer(308, b"", {"Range": f"bytes=0-{len(have) - 1}"} if have else {})

    def do_DELETE(self) -> None:
        name = unquote(urlsplit(self.path).path.partition("/o/")[2])
        if not self._refused():
            found = self.gcs.objects.pop(name, None)
            self._answer(404 if found is None else 204, b"")

    def _stored(self, name: str, data: bytes) -> None:
        self.gcs.objects[name] = data
        if self.gcs.lose_next:
            self.gcs.lose_next -= 1
            self._answer(503, b"lost")
            return
        digest = hashlib.md5(b"other" if self.gcs.spoil else data).digest()  # noqa: S324
        about = {"name": name, "size": str(len(data)), "md5Hash": base64.b64encode(digest).decode()}
        self._answer(200, json.dumps(about).encode())

    def _refused(self) -> bool:
        self.gcs.requests.append(f"{self.command} {self.path}")
        if self.gcs.forbid:
            self._answer(403, b"no access")
            return True
        if self.gcs.fail_next:
            self.gcs.fail_next -= 1
            self._answer(503, b"busy")
            return True
        return False

    def _media(self, name: str) -> None:
        data = self.gcs.objects.get(name)
        if data is None:
            self._answer(404, b"{}")
            return
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        if int(first) >= len(data):
            self._answer(416, b"")
            return
        self._answer(206, data[int(first) : int(last) + 1])

    def _list(self, query: dict[str, str]) -> None:
        prefix = query.get("prefix", "")
        begin = max(query.get("startOffset", ""), query.get("pageToken", ""))
        names = [n for n in sorted(self.gcs.objects) if n.startswith(prefix) and n >= begin]
        answer: dict[str, object] = {}
        if query.get("delimiter"):
            folders = {prefix + n.removeprefix(prefix).split("/")[0] + "/" for n in names}
            answer["prefixes"] = sorted(folders)
        else:
            page, rest = names[: self.gcs.page], names[self.gcs.page :]
            answer["items"] = [{"name": n, "size": str(len(self.gcs.objects[n]))} for n in page]
            if rest:
                answer["nextPageToken"] = rest[0]
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status, HTTPStatus(status).phrase)
        for header, value in (headers or {}).items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""
