"""Both connections answer alike; the plain one speaks HTTP itself."""

from __future__ import annotations

import json
import socket
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from cli.connection import (
    ApiCall,
    ApiConnection,
    CallFailed,
    CannotBeSent,
    ClosedUnanswered,
    HttpxConnection,
    NoAnswerInTime,
    NobodyListens,
    PlainConnection,
    PlainResponse,
    answers,
    connect,
    is_plain,
    open_http,
)
from core.access import TENANT_HEADER

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
        listening.accept()[0].close()
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


def answer(body: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


Plan = Sequence[bytes | None]


@contextmanager
def scripted(*plans: Plan, host: str = "127.0.0.1") -> Iterator[tuple[str, list[str]]]:
    """A server, and the request lines it got. Its connections follow one plan each: for each
    request the bytes to send, None to close at once."""
    got: list[str] = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def serve(plan: Plan) -> None:
        with listening.accept()[0] as taken:
            for step in plan:
                head = taken.recv(65536)
                if not head or step is None:
                    got.extend([head.decode().partition(" HTTP")[0]] if head else [])
                    return
                got.append(head.decode().partition(" HTTP")[0])
                taken.sendall(step)

    def serve_all() -> None:
        for plan in plans:
            with suppress(OSError):
                serve(plan)

    with socket.create_server((host, 0), family=family) as listening:
        listening.settimeout(10)
        Thread(target=serve_all, daemon=True).start()
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{listening.getsockname()[1]}", got


def test_a_late_answer_is_not_that_of_the_next_call(make: Make) -> None:
    """After a call that was not answered in time the next call has a connection of its own."""
    with scripted([b"", answer("late")], [answer("right")]) as (at, _):
        line = make(at)
        with pytest.raises(NoAnswerInTime):
            line.request(ApiCall("GET", "/1"), 0.05)
        assert line.request(ApiCall("GET", "/2"), 5).content == b"right"
        line.close()


def test_half_a_body_leaves_no_rest_to_the_next_call(make: Make) -> None:
    """A body that was not complete in time ends its connection."""
    half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"
    with scripted([half, b"-body" + answer("late")], [answer("right")]) as (at, _):
        line = make(at)
        with pytest.raises(NoAnswerInTime):
            line.request(ApiCall("GET", "/1"), 0.05)
        assert line.request(ApiCall("GET", "/2"), 5).content == b"right"
        line.close()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, CancelledError, MemoryError])
def test_an_interrupted_call_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """Also an exception that is no failure of the call."""

    def interrupted(*_: object) -> None:
        raise kind

    with scripted([b"HTTP/1.1 ", answer("late")], [answer("right")]) as (at, _):
        line = PlainConnection(at)
        with monkeypatch.context() as patched:
            patched.setattr(PlainResponse, "feed", interrupted)
            with pytest.raises(kind):
                line.request(ApiCall("GET", "/1"), 5)
        assert line.request(ApiCall("GET", "/2"), 5).content == b"right"
        line.close()


def test_a_call_within_a_stream_has_its_own_socket(make: Make, address: str) -> None:
    """The rest of the stream is not taken for the answer to the call."""
    line = make(address)
    with line.stream(ApiCall("GET", "/chunked")) as got:
        assert line.request(ApiCall("GET", "/x")).json()["path"] == "/x"
        assert b"".join(got.iter_bytes()) == BIG + b"end"
    line.close()


@pytest.mark.parametrize(
    ("method", "headers", "repeated"),
    [
        ("GET", {}, True),
        ("POST", {}, False),
        ("DELETE", {}, False),
        ("POST", {"Idempotency-Key": "k"}, True),
    ],
)
def test_only_harmless_calls_are_sent_twice(
    method: str, headers: dict[str, str], repeated: bool
) -> None:
    """A server may have acted upon a call before it closed the connection."""
    with scripted([answer("one"), None], [answer("two")]) as (at, got):
        line = PlainConnection(at)
        line.request(ApiCall("GET", "/1"), 5)
        if repeated:
            assert line.request(ApiCall(method, "/2", headers=headers), 5).content == b"two"
        else:
            with pytest.raises(ClosedUnanswered):
                line.request(ApiCall(method, "/2", headers=headers), 5)
        line.close()
        assert got == ["GET /1", *[f"{method} /2"] * (2 if repeated else 1)]


def test_a_new_connection_that_is_closed_is_not_tried_again() -> None:
    """Only a kept socket may have been closed for its age."""
    with scripted([None], [answer("two")]) as (at, got):
        with pytest.raises(ClosedUnanswered, match="without an answer"):
            PlainConnection(at).request(ApiCall("GET", "/1"), 5)
        assert got == ["GET /1"]


INTERIM = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "sent", "status", "body"),
    [
        ("GET", INTERIM + INTERIM + answer("ok"), 200, b"ok"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", 200, b""),
        ("GET", answer("ok") + b"HTTP/1.1 500 No\r\nx: y\r\n\r\n", 200, b"ok"),
        ("GET", answer("ok") + b"garbage", 200, b"ok"),
        ("GET", b"HTTP/1.1 200 OK\r\n\r\nto the end", 200, b"to the end"),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\nold", 200, b"old"),
    ],
)
def test_answers_of_every_form(method: str, sent: bytes, status: int, body: bytes) -> None:
    """Interim answers are passed over; what follows an answer belongs to no call."""
    with scripted([sent]) as (at, _):
        line = PlainConnection(at)
        got = line.request(ApiCall(method, "/1"), 5)
        line.close()
    assert (got.status_code, got.content) == (status, body)
    assert "link" not in got.headers
    assert "x" not in got.headers
    assert "Early" not in got.reason_phrase


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbig: " + b"x" * 2_000_000 + b"\r\n\r\n",
    ],
    ids=["chunk", "last chunk", "head", "upgrade", "two lengths", "large"],
)
def test_answers_without_an_end_are_none(sent: bytes) -> None:
    """What is cut, ambiguous or without bounds is a failure, and the next call works."""
    with scripted([sent], [answer("right")]) as (at, _):
        line = PlainConnection(at)
        with pytest.raises(CallFailed):
            line.request(ApiCall("GET", "/1"), 5)
        assert line.request(ApiCall("GET", "/2"), 5).content == b"right"
        line.close()


def test_ipv6() -> None:
    """An address in brackets."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with scripted([answer("six")], host="::1") as (at, _):
        line = PlainConnection(at)
        assert line.request(ApiCall("GET", "/1"), 5).content == b"six"
        line.close()


@pytest.mark.parametrize("value", ["b\r\nc: d", "b\nc", "b\x00", "b\x7f", "\u20ac", "\udcff"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("authorization", "the API key .*key file"),
        (TENANT_HEADER, "the name of the tenant"),
        ("a", "the header a"),
    ],
)
def test_a_header_is_one_line(make: Make, name: str, value: str, words: str) -> None:
    """Nothing can add a header or a request; the error names what is wrong, not the secret."""
    call = ApiCall("GET", "/x", headers={name: f"hidden{value}"})
    line = make("http://127.0.0.1:1")
    with pytest.raises(CannotBeSent, match=words) as raised:
        line.request(call)
    assert "hidden" not in str(raised.value)
    with pytest.raises(CannotBeSent, match=words), line.stream(call):
        pass
    line.close()


def test_headers_may_hold_latin_1(make: Make, address: str) -> None:
    line = make(address)
    call = ApiCall("GET", "/x", headers={"authorization": "é"})
    assert line.request(call).json()["key"] == "é"
    line.close()


@pytest.mark.parametrize(
    "call",
    [
        ApiCall("GET", "/x", {"user": "\udcff"}),
        ApiCall("GET", "/x", headers={"a b": "c"}),
    ],
)
def test_malformed_calls_are_refused(make: Make, call: ApiCall) -> None:
    """Nothing is sent of them."""
    with pytest.raises(CannotBeSent):
        make("http://127.0.0.1:1").request(call)


@pytest.mark.parametrize(("method", "where"), [("GET", "/x y"), ("GET", "/é"), ("G T", "/x")])
def test_a_request_line_has_three_words(method: str, where: str) -> None:
    with pytest.raises(CannotBeSent):
        PlainConnection("http://127.0.0.1:1").request(ApiCall(method, where))


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("a..b", "no name of a host"),
        (".a", "no name of a host"),
        ("a" * 64 + ".example", "no name of a host"),
        ("127.0.0.1:99999", "no port"),
    ],
)
def test_bad_hosts_are_refused(scheme: str, host: str, words: str) -> None:
    """In words, before anything is sent."""
    with pytest.raises(CannotBeSent, match=words):
        connect(f"{scheme}://{host}")
    assert not answers(f"{scheme}://{host}", "/x", 5)


def test_what_stands_in_brackets_is_ipv6() -> None:
    """The name service would take `1.2` for 1.0.0.2."""
    for host in ("[:::]", "[1.2]"):
        with pytest.raises(CannotBeSent, match="IPv6"):
            connect(f"http://{host}")
    connect("http://zen.example.").close()


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
