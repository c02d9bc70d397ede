"""HTTP to one address, as the commands need it: plain HTTP over a socket, which is there at once;
TLS, proxies and credentials of the address by httpx, whose import takes longer than a command."""

from __future__ import annotations

import json
import os
import re
import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlencode

import httptools

from core.browser_checks import is_loopback

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 30.0
_PLAIN = re.compile(r"http://([\w.-]+|\[[0-9a-fA-F:.]+\])(?::(\d{1,5}))?((?:/[\w.~-]+)*)", re.ASCII)
_READ_BYTES = 256 * 1024


class ApiCall(NamedTuple):
    """What is sent."""

    method: str
    where: str
    query: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    body: bytes | None = None


class CallFailed(Exception):
    """No answer; the text says why."""


class NobodyListens(CallFailed):
    """There is no connection to the address."""


class NoAnswerInTime(CallFailed):
    """It took too long."""


class Response(Protocol):
    """What was answered; of a stream the body comes in pieces."""

    @property
    def status_code(self) -> int: ...
    @property
    def reason_phrase(self) -> str: ...
    @property
    def headers(self) -> Any: ...
    @property
    def content(self) -> bytes: ...
    def json(self) -> Any: ...
    def read(self) -> bytes: ...
    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]: ...


class ApiConnection(Protocol):
    """Calls to one address. Each raises CallFailed when there is no answer."""

    def request(self, call: ApiCall, timeout_s: float = TIMEOUT_S) -> Response: ...
    def stream(self, call: ApiCall) -> AbstractContextManager[Response]: ...
    def close(self) -> None: ...


def is_plain(address: str, environment: Mapping[str, str]) -> bool:
    """Whether a socket will do: no TLS, no credentials in the address, no proxy on the way."""
    found = _PLAIN.fullmatch(address)
    if found is None:
        return False
    proxies = {name.lower() for name, value in environment.items() if value}
    return is_loopback(found[1].strip("[]")) or not {"http_proxy", "all_proxy"} & proxies


class _Headers(dict[str, str]):
    """By name, in any case."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class PlainResponse:
    """An answer over a socket; also what the parser calls while it reads."""

    def __init__(self) -> None:
        self.reason_phrase = ""
        self.headers = _Headers()
        self.status_code = 0
        self.content = b""
        self.complete = self.in_body = self.stays_open = False
        self._parts: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._more: Iterator[bytes] = iter(())

    # --- for the parser ---

    def on_status(self, words: bytes) -> None:
        self.reason_phrase += words.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        key, words = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {words}" if key in self.headers else words

    def on_headers_complete(self) -> None:
        self.status_code = self._parser.get_status_code()
        self.in_body = True

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        self.complete = True
        self.stays_open = self._parser.should_keep_alive()

    # --- for the connection ---

    def feed(self, data: bytes) -> None:
        """What came over the wire; nothing: it was closed, which ends a body without a length."""
        if data:
            self._parser.feed_data(data)
        elif self.in_body and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self.complete = True
        else:
            raise CallFailed("the connection was closed within the answer")

    def taken(self) -> Iterator[bytes]:
        """What there is of the body."""
        parts, self._parts = self._parts, []
        yield from parts

    def reads(self, more: Iterator[bytes]) -> PlainResponse:
        self._more = more
        return self

    # --- for the caller ---

    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        """The body in pieces; `chunk_size` is for others who answer to this name."""
        del chunk_size
        return self._more

    def read(self) -> bytes:
        self.content += b"".join(self._more)
        return self.content

    def json(self) -> Any:
        return json.loads(self.content)


class PlainConnection:
    """One call after the other over one socket, which is opened again when it was closed."""

    def __init__(self, address: str) -> None:
        found = _PLAIN.fullmatch(address)
        assert found is not None, f"no plain address: {address}"
        self._host, self._port = found[1].strip("[]"), int(found[2] or 80)
        self._prefix = found[3]
        self._name = address.removeprefix("http://").partition("/")[0]
        self._socket: socket.socket | None = None

    def request(self, call: ApiCall, timeout_s: float = TIMEOUT_S) -> PlainResponse:
        response = self._answer(call, timeout_s)
        response.read()
        return response

    @contextmanager
    def stream(self, call: ApiCall) -> Iterator[PlainResponse]:
        try:
            yield self._answer(call, TIMEOUT_S)
        finally:
            self.close()  # the rest may not have been read

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _answer(self, call: ApiCall, timeout_s: float) -> PlainResponse:
        """The answer up to its headers."""
        sent = _head(call, self._prefix, self._name) + (call.body or b"")
        response = PlainResponse()
        with _in_words():
            opened = self._open(timeout_s)
            with suppress(BrokenPipeError, ConnectionResetError):
                opened.sendall(sent)  # a server may refuse a body before it has read all of it
            while not response.in_body:
                response.feed(opened.recv(_READ_BYTES))
        return response.reads(self._body(opened, response))

    def _body(self, opened: socket.socket, response: PlainResponse) -> Iterator[bytes]:
        while True:
            yield from response.taken()
            if response.complete:
                break
            with _in_words():
                response.feed(opened.recv(_READ_BYTES))
        if not response.stays_open:
            self.close()

    def _open(self, timeout_s: float) -> socket.socket:
        """The socket of the last call, unless the server has closed it meanwhile."""
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()
        if self._socket is None:
            try:
                self._socket = socket.create_connection((self._host, self._port), timeout_s)
            except TimeoutError:
                raise
            except OSError as error:
                raise NobodyListens(str(error)) from error
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(timeout_s)
        return self._socket


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise NoAnswerInTime(str(error)) from error
    except (OSError, httptools.HttpParserError) as error:
        raise CallFailed(str(error)) from error


def _head(call: ApiCall, prefix: str, host: str) -> bytes:
    """The request up to its body."""
    query = f"?{_encoded(call.query)}" if call.query else ""
    lines = [f"{call.method} {prefix}{call.where}{query} HTTP/1.1", f"host: {host}", "accept: */*"]
    lines += [f"{name}: {value}" for name, value in call.headers.items()]
    if call.body is not None or call.method != "GET":
        lines.append(f"content-length: {len(call.body or b'')}")
    assert not any(letter in line for line in lines for letter in "\r\n"), "a line is one line"
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _encoded(query: Mapping[str, object]) -> str:
    return urlencode({name: _word(value) for name, value in query.items()}, doseq=True)


def _word(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_word(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else value


class HttpxConnection:
    """The same by httpx."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def request(self, call: ApiCall, timeout_s: float = TIMEOUT_S) -> Response:
        with self._in_words():
            return self._http.request(
                call.method,
                call.where,
                params=dict(call.query),
                content=call.body,
                headers=dict(call.headers),
                timeout=timeout_s,
            )

    @contextmanager
    def stream(self, call: ApiCall) -> Iterator[Response]:
        params, headers = dict(call.query), dict(call.headers)
        with (
            self._in_words(),
            self._http.stream(call.method, call.where, params=params, headers=headers) as answer,
        ):
            yield answer

    def close(self) -> None:
        self._http.close()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except httpx.ConnectError as error:
            raise NobodyListens(str(error)) from error
        except httpx.TimeoutException as error:
            raise NoAnswerInTime(str(error)) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CallFailed(str(error)) from error


def open_http(address: str) -> httpx.Client:
    """By httpx. A proxy of the environment must not catch what is meant for loopback."""
    import ssl
    from urllib.parse import urlsplit

    import httpx

    local = is_loopback(urlsplit(address).hostname or "")
    # httpx reads SSL_CERT_FILE only together with the proxies of the environment.
    mine = os.environ.get("SSL_CERT_FILE") if local and address.startswith("https:") else None
    verify = ssl.create_default_context(cafile=mine) if mine else True
    return httpx.Client(base_url=address, timeout=TIMEOUT_S, trust_env=not local, verify=verify)


def connect(address: str) -> ApiConnection:
    """A connection to the address; nothing is sent before the first call."""
    if is_plain(address, os.environ):
        return PlainConnection(address)
    return HttpxConnection(open_http(address))


def answers(address: str, where: str, within_s: float) -> bool:
    """Whether that page of a plain address is there."""
    if not is_plain(address, os.environ):
        return False
    connection = PlainConnection(address)
    try:
        return connection.request(ApiCall("GET", where), within_s).status_code == 200
    except CallFailed:
        return False
    finally:
        connection.close()
