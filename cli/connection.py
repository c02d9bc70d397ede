"""HTTP to one address, as the commands need it: plain HTTP over a socket, which is there at once;
TLS, proxies and credentials of the address by httpx, whose import takes longer than a command."""

from __future__ import annotations

import json
import os
import re
import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlencode

import httptools

from core.browser_checks import is_loopback

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 30.0
_PLAIN = re.compile(r"http://([\w.-]+|\[[0-9a-fA-F:.]+\])(?::(\d{1,5}))?((?:/[\w.~-]+)*)", re.ASCII)
_READ_BYTES = 256 * 1024
_HEAD_MAX_BYTES = 1024 * 1024
_LABEL_MAX = 63
_PORT_MAX = 65535
_TARGET = re.compile(r"[!-~]+")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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


class CannotBeSent(CallFailed):
    """The call or its address is malformed: nothing was sent."""


class ClosedUnanswered(CallFailed):
    """The server closed the connection before the first byte of an answer."""


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

    def __init__(self, method: str = "GET") -> None:
        self._method = method
        self.reason_phrase = ""
        self.headers = _Headers()
        self.status_code = 0
        self.content = b""
        self.complete = self.in_body = self.stays_open = False
        self._received = 0
        self._parts: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._more: Iterator[bytes] = iter(())

    # --- for the parser; what follows a complete answer belongs to no call ---

    def on_message_begin(self) -> None:
        if self.complete:
            self.stays_open = False

    def on_status(self, words: bytes) -> None:
        if not self.complete:
            self.reason_phrase += words.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.complete:
            return
        key, words = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {words}" if key in self.headers else words

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status_code = self._parser.get_status_code()
        self.in_body = self.status_code >= 200  # below: an interim answer
        self.complete = self.in_body and self._method == "HEAD"

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        if self.complete:
            return
        if self.in_body:
            self.complete = True
            self.stays_open = self._parser.should_keep_alive()
        else:
            self.reason_phrase = ""
            self.headers.clear()

    # --- for the connection ---

    def feed(self, data: bytes) -> None:
        """What came over the wire; nothing: it was closed, which ends a body without a length."""
        self._received += len(data)
        if data:
            self._parse(data)
        elif self.in_body and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self.complete = True
        elif self._received:
            raise CallFailed("the connection was closed within the answer")
        else:
            raise ClosedUnanswered("the connection was closed without an answer")

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise CallFailed("the server switched to another protocol") from error
        except httptools.HttpParserError:
            if not self.complete:
                raise
            self.stays_open = False
        if not self.in_body and self._received > _HEAD_MAX_BYTES:
            raise CallFailed(f"the answer has more than {_HEAD_MAX_BYTES} bytes of headers")

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
    """One call after the other over one socket. The socket is kept for the next call only after an
    answer was read to its end: a late answer must not be taken for that of the next call."""

    def __init__(self, address: str) -> None:
        found = _PLAIN.fullmatch(address)
        assert found is not None, f"no plain address: {address}"
        self._host, self._port = found[1].strip("[]"), int(found[2] or 80)
        _check_host(found[1], self._port)
        self._prefix = found[3]
        self._name = address.removeprefix("http://").partition("/")[0]
        self._socket: socket.socket | None = None

    def request(self, call: ApiCall, timeout_s: float = TIMEOUT_S) -> PlainResponse:
        with self._answered(call, timeout_s) as response:
            response.read()
        return response

    def stream(self, call: ApiCall) -> AbstractContextManager[PlainResponse]:
        return self._answered(call, TIMEOUT_S)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @contextmanager
    def _answered(self, call: ApiCall, timeout_s: float) -> Iterator[PlainResponse]:
        """The answer up to its headers; the body is read from the socket within the context."""
        opened, response = self._exchange(call, timeout_s)
        try:
            yield response.reads(_body(opened, response))
        except BaseException:
            opened.close()
            raise
        if response.complete and response.stays_open and self._socket is None:
            self._socket = opened
        else:
            opened.close()

    def _exchange(self, call: ApiCall, timeout_s: float) -> tuple[socket.socket, PlainResponse]:
        """A server may close a kept socket while the call is on its way: the call is sent once more
        over a new socket if it does no harm twice."""
        sent = _head(call, self._prefix, self._name) + (call.body or b"")
        kept = self._take_kept()
        if kept is not None:
            try:
                return kept, _heard(kept, sent, call.method, timeout_s)
            except ClosedUnanswered:
                if not _repeatable(call):
                    raise
        opened = self._connected(timeout_s)
        return opened, _heard(opened, sent, call.method, timeout_s)

    def _take_kept(self) -> socket.socket | None:
        """The socket of the last call, unless the server has closed it meanwhile."""
        kept, self._socket = self._socket, None
        if kept is not None and select.select([kept], [], [], 0)[0]:
            kept.close()
            return None
        return kept

    def _connected(self, timeout_s: float) -> socket.socket:
        try:
            opened = socket.create_connection((self._host, self._port), timeout_s)
        except TimeoutError as error:
            raise NoAnswerInTime(str(error)) from error
        except OSError as error:
            raise NobodyListens(str(error)) from error
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened


def _heard(opened: socket.socket, sent: bytes, method: str, timeout_s: float) -> PlainResponse:
    """Sends a call and reads the answer up to its headers; after any error the socket is closed."""
    response = PlainResponse(method)
    try:
        with _in_words():
            opened.settimeout(timeout_s)
            with suppress(BrokenPipeError, ConnectionResetError):
                opened.sendall(sent)  # a server may refuse a body before it has read all of it
            while not response.in_body:
                response.feed(_received(opened, response))
    except BaseException:
        opened.close()
        raise
    return response


def _received(opened: socket.socket, response: PlainResponse) -> bytes:
    """What came; nothing if the server closed the connection, also if it did so before it had read
    the whole call."""
    try:
        return opened.recv(_READ_BYTES)
    except ConnectionResetError:
        if response.in_body:
            raise  # a body without a length would seem to be complete
        return b""


def _body(opened: socket.socket, response: PlainResponse) -> Iterator[bytes]:
    while True:
        yield from response.taken()
        if response.complete:
            return
        with _in_words():
            response.feed(_received(opened, response))


def _repeatable(call: ApiCall) -> bool:
    """Whether the server may get the call twice: it changes nothing, or the server can tell."""
    return call.method in ("GET", "HEAD") or any(
        name.lower() == "idempotency-key" for name in call.headers
    )


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
    target = f"{prefix}{call.where}{query}"
    if _TARGET.fullmatch(target) is None or _HEADER_NAME.fullmatch(call.method) is None:
        raise CannotBeSent(f"{call.method!a} {target!a} is no request")
    lines = [f"{call.method} {target} HTTP/1.1".encode(), f"host: {host}".encode(), b"accept: */*"]
    lines += [name + b": " + value for name, value in _headers_of(call).items()]
    if call.body is not None or call.method not in ("GET", "HEAD"):
        lines.append(f"content-length: {len(call.body or b'')}".encode())
    return b"\r\n".join([*lines, b"", b""])


def _headers_of(call: ApiCall) -> dict[bytes, bytes]:
    """The headers as they are sent. A value may be secret: an error never shows it."""
    found = {}
    for name, value in call.headers.items():
        if _HEADER_NAME.fullmatch(name) is None:
            raise CannotBeSent(f"{name!a} is no name of a header")
        if _CONTROL.search(value):
            raise CannotBeSent(f"{_source_of(name)} holds a line break or control character")
        try:
            found[name.encode()] = value.encode("latin-1")
        except UnicodeEncodeError as error:
            raise CannotBeSent(
                f"{_source_of(name)} holds a character that no header can hold (position "
                f"{error.start + 1} of the header {name}; only Latin-1 can be sent)"
            ) from None
    return found


def _source_of(header: str) -> str:
    """Where the value of a header comes from, for a person who has to correct it."""
    from core.access import TENANT_HEADER

    sources = {
        "authorization": "the API key (of ZEN_API_KEY, of the key file or of the sign-in)",
        TENANT_HEADER: "the name of the tenant",
    }
    return sources.get(header.lower(), f"the header {header}")


def _check_host(host: str, port: int | None) -> None:
    """Refuses a host that no name service is asked for, and a port that does not exist."""
    if host.startswith("["):
        try:
            socket.inet_pton(socket.AF_INET6, host.strip("[]"))
        except OSError:
            raise CannotBeSent(f"{host} is no IPv6 address") from None
    elif not all(0 < len(label) <= _LABEL_MAX for label in host.removesuffix(".").split(".")):
        raise CannotBeSent(
            f"{host!a} is no name of a host: each part between dots has 1 to {_LABEL_MAX} letters"
        )
    if port is not None and port > _PORT_MAX:
        raise CannotBeSent(f"{port} is no port: the highest is {_PORT_MAX}")


def _encoded(query: Mapping[str, object]) -> str:
    try:
        return urlencode({name: _word(value) for name, value in query.items()}, doseq=True)
    except UnicodeEncodeError as error:
        raise CannotBeSent(f"{error.object!a} in the query is no text in UTF-8") from None


def _checked_query(call: ApiCall) -> dict[str, Any]:
    _encoded(call.query)
    return dict(call.query)


def _word(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_word(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else value


class HttpxConnection:
    """The same by httpx."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def request(self, call: ApiCall, timeout_s: float = TIMEOUT_S) -> Response:
        params, headers = _checked_query(call), _headers_of(call)
        with self._in_words():
            return self._http.request(
                call.method,
                call.where,
                params=params,
                content=call.body,
                headers=headers,
                timeout=timeout_s,
            )

    @contextmanager
    def stream(self, call: ApiCall) -> Iterator[Response]:
        params, headers = _checked_query(call), _headers_of(call)
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
    http = open_http(address)
    if ":" not in http.base_url.host:
        _check_host(http.base_url.host, http.base_url.port)
    return HttpxConnection(http)


def answers(address: str, where: str, within_s: float) -> bool:
    """Whether that page of a plain address is there."""
    if not is_plain(address, os.environ):
        return False
    try:
        with closing(PlainConnection(address)) as connection:
            return connection.request(ApiCall("GET", where), within_s).status_code == 200
    except CallFailed:
        return False
