"""Both connections answer alike; the plain one speaks HTTP itself."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from cli.connection import (
    ApiCall,
    ApiConnection,
    CallFailed,
    HttpxConnection,
    NoAnswerInTime,
    NobodyListens,
    PlainConnection,
    answers,
    connect,
    is_plain,
    open_http,
)

Make = Callable[[str], ApiConnection]
BIG = bytes(range(256)) * 4096


class Echo(BaseHTTPRequestHandler):
    """Tells what came, or ends as its path says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        told = {
            "method": self.command,
            "path": self.path,
            "body": body.decode(),
            "key": self.headers.get("authorization"),
            "host": self.headers["host"],
            "peer": self.client_address[1],
        }
        self.respond(json.dumps(told).encode())

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  # names of the standard library

    def respond(self, body: bytes) -> None:
        name = self.path.strip("/").partition("?")[0]
        self.send_response(503 if name == "refused" else 200)
        self.send_header("Zen-Twice", "a")
        self.send_header("Zen-Twice", "b")
        if name == "chunked":
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for part in (BIG, b"end"):
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
            return
        self.close_connection = name in ("until-closed", "cut", "last")
        if name == "last":
            self.send_header("connection", "close")
        if name != "until-closed":
            length = len(body) + (1 if name == "cut" else 0)
            self.send_header("content-length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quietly."""


class Quiet(ThreadingHTTPServer):
    """Says nothing of clients that leave early."""

    def handle_error(self, *_: object) -> None:
        """They may."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = Quiet(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with server:
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(params=["plain", "httpx"])
def make(request: pytest.FixtureRequest) -> Make:
    by_httpx: Make = lambda at: HttpxConnection(open_http(at))  # noqa: E731
    return PlainConnection if request.param == "plain" else by_httpx


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_calls_arrive_whole(make: Make, address: str, method: str) -> None:
    """Method, path, query, headers and body; the answer's headers are found in any case."""
    line = make(address + "/base")
    query = {"a": "x y&z", "many": ["1", "é"], "flag": True, "n": 7}
    headers = {"authorization": "Bearer k"}
    body = None if method == "GET" else "ü".encode()
    got = line.request(ApiCall(method, "/p%2Fq", query, headers, body))
    told = got.json()
    line.close()
    assert (told["method"], told["key"], told["body"]) == (method, "Bearer k", "ü" if body else "")
    path, _, asked = told["path"].partition("?")
    assert path == "/base/p%2Fq"
    assert asked.replace("%20", "+") == "a=x+y%26z&many=1&many=%C3%A9&flag=true&n=7"
    assert told["host"] == address.removeprefix("http://")
    assert got.headers.get("ZEN-twice") == "a, b"
    assert (got.status_code, got.reason_phrase) == (200, "OK")


@pytest.mark.parametrize("name", ["length", "until-closed", "last", "refused"])
def test_bodies_end_where_they_end(make: Make, address: str, name: str) -> None:
    """With a length, with the connection, with an error: the next call works again."""
    line = make(address)
    for _ in range(2):
        got = line.request(ApiCall("GET", f"/{name}"))
        assert got.json()["path"] == f"/{name}"
        assert got.status_code == (503 if name == "refused" else 200)
    line.close()


def test_one_socket_serves_many_calls(make: Make, address: str) -> None:
    """It is opened once, unless the server closes it."""
    line = make(address)
    peers = [line.request(ApiCall("GET", "/x")).json()["peer"] for _ in range(3)]
    assert len(set(peers)) == 1
    line.request(ApiCall("GET", "/last"))
    assert line.request(ApiCall("GET", "/x")).json()["peer"] != peers[0]
    line.close()


def test_streams_come_in_pieces(make: Make, address: str) -> None:
    """All of the body, also in chunks; who leaves early disturbs no later call."""
    line = make(address)
    with line.stream(ApiCall("GET", "/chunked")) as got:
        assert b"".join(got.iter_bytes(65536)) == BIG + b"end"
    with line.stream(ApiCall("GET", "/chunked")):
        pass
    with line.stream(ApiCall("GET", "/refused")) as got:
        assert got.read()
    assert line.request(ApiCall("GET", "/x")).status_code == 200
    line.close()


def test_an_error_of_the_reader_is_not_one_of_the_connection(make: Make, address: str) -> None:
    """A full disk is told as such."""
    line = make(address)
    with pytest.raises(OSError, match="disk"), line.stream(ApiCall("GET", "/chunked")):
        raise OSError("the disk is full")
    line.close()


def test_half_an_answer_is_none(make: Make, address: str) -> None:
    """A connection that is closed within the answer is a failure, not a short answer."""
    line = make(address)
    with pytest.raises(CallFailed):
        line.request(ApiCall("GET", "/cut"))
    line.close()


def test_what_is_not_there_is_told_apart(make: Make) -> None:
    """Nobody listens; nobody answers in time; what answers is no HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        at = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(NoAnswerInTime):
            make(at).request(ApiCall("GET", "/x"), 0.05)
        line = make(at)
        listening.settimeout(10)

        def garbage() -> None:
            while True:
                taken = listening.accept()[0]
                if taken.recv(4096):
                    taken.sendall(b"SSH-2.0\r\n")
                    taken.close()
                    return

        Thread(target=garbage, daemon=True).start()
        with pytest.raises(CallFailed):
            line.request(ApiCall("GET", "/x"))
    with pytest.raises(NobodyListens):
        make(at).request(ApiCall("GET", "/x"))


def test_a_header_is_one_line() -> None:
    """Nothing can add a header or a request."""
    with pytest.raises(AssertionError):
        PlainConnection("http://127.0.0.1:1").request(
            ApiCall("GET", "/x", headers={"a": "b\r\nc: d"})
        )


@pytest.mark.parametrize(
    ("address", "environment", "plain"),
    [
        ("http://127.0.0.1:80", {"HTTP_PROXY": "http://p"}, True),
        ("http://[::1]:80/zen", {"ALL_PROXY": "http://p"}, True),
        ("http://zen.example:8080", {}, True),
        ("http://zen.example:8080", {"no_proxy": "*", "http_proxy": ""}, True),
        ("http://zen.example:8080", {"http_proxy": "http://p"}, False),
        ("http://zen.example:8080", {"all_proxy": "http://p"}, False),
        ("https://127.0.0.1", {}, False),
        ("http://user:word@127.0.0.1", {}, False),
        ("http://127.0.0.1?x=1", {}, False),
        ("http://ü.example", {}, False),
        ("http://a b", {}, False),
        ("ftp://127.0.0.1", {}, False),
    ],
)
def test_a_socket_will_do(address: str, environment: dict[str, str], plain: bool) -> None:
    """TLS, credentials in the address and proxies are httpx's; loopback never goes to a proxy."""
    assert is_plain(address, environment) is plain
    assert isinstance(connect("http://127.0.0.1:1"), PlainConnection)


def test_health_is_asked_of_plain_addresses(address: str) -> None:
    """Whatever goes wrong, it does not answer."""
    assert answers(address, "/x", 5)
    assert not answers(address, "/refused", 5)
    assert not answers("http://127.0.0.1:1", "/x", 5)
    assert not answers("https://127.0.0.1:1", "/x", 5)
