"""The REST API as the commands see it: one sync client, errors as one line."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from types import TracebackType
from typing import Any
from urllib.parse import quote

from typer import BadParameter

from cli.connection import (
    TIMEOUT_S,
    ApiCall,
    CallFailed,
    CannotBeSent,
    NoAnswerInTime,
    NobodyListens,
    Response,
    answers,
    connect,
)
from cli.credentials import key_for
from cli.paths import PROGRAM, alive, home
from core.errors import BadInput, Fault, ZenError

ALIVE_S = 1.0
Json = dict[str, Any]


class Unreachable(ZenError):
    """Nobody answers at the address: start it, or name the right one."""

    code = "unreachable"


class Refused(ZenError):
    """The API answered with an error; its own words, its own code."""

    def __init__(
        self, status: int, code: str, message: str, usd_per_hour: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.usd_per_hour = usd_per_hour
        """Of a price that is not confirmed: what it is."""


def api_address(named: str | None) -> str:
    """--api or ZEN_API, else what runs in the state directory. Never a guess: on the usual port
    somebody else's stack may answer."""
    address = named or os.environ.get("ZEN_API") or ""
    if not address:
        running = home().read()
        if running is None:
            raise Unreachable(
                f"nothing runs here: start it with {PROGRAM} up, or name an API with --api or "
                "ZEN_API"
            )
        address = _answering(running.apis) or running.api
    if "://" not in address:
        address = f"http://{address}"
    return address.rstrip("/")


def _answering(apis: Sequence[str]) -> str | None:
    """The first replica that says it lives: one of several may have died, or hang."""
    several = apis if len(apis) > 1 else ()
    health = f"{API.prefix}/health"
    return next((one for one in several if answers(one, health, ALIVE_S)), None)


def sim_client(address: str | None = None) -> Client:
    """The pretend cloud: at that address, or that of this state directory."""
    running = home().read()
    found = address or os.environ.get("ZEN_SIM") or (running.sim if running else "")
    if not found:
        raise Unreachable(f"no pretend cloud runs here: start it with {PROGRAM} up")
    return Client(found.rstrip("/"), server=PRETEND_CLOUD)


def path(*words: str) -> str:
    """A path of the API from words that may hold anything; but an id is never empty, nor one of
    the two words that lead elsewhere."""
    for word in words:
        if word.strip() in ("", ".", ".."):
            raise BadParameter(f"got {word!r}, expected an id")
    return "/" + "/".join(quote(word, safe="") for word in words)


@dataclass(frozen=True, slots=True)
class Server:
    """What is called."""

    name: str
    prefix: str
    wants_key: bool


API = Server("API", "/api/v1", wants_key=True)
PRETEND_CLOUD = Server("pretend cloud", "/sim/v1", wants_key=False)
SIGN_IN_PAGE = Server("sign-in page", "", wants_key=False)


class Client:
    """Calls that return parsed JSON or raise one-line errors."""

    def __init__(self, address: str, key: str | None = None, server: Server = API) -> None:
        """`key`: the one to send; without it the one that belongs to the address."""
        self.address, self._prefix, self._what = address, server.prefix, server.name
        try:
            self._http = connect(address)
        except Exception as error:  # httpx raises several kinds for an address it cannot parse
            raise Unreachable(f"{address!r} is no address of an API: {error}") from error
        self.key = key or (key_for(address) if server.wants_key else None)
        self._headers = {"authorization": f"Bearer {self.key}"} if self.key else {}

    def speak_for(self, tenant_id: str) -> None:
        """From now on: jobs of other tenants are not there."""
        from core.access import TENANT_HEADER

        self._headers[TENANT_HEADER] = tenant_id

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, where: str, query: Mapping[str, object] | None = None) -> Json:
        return self.json(self.call("GET", where, query=query))

    def post(
        self, where: str, body: object = None, query: Mapping[str, object] | None = None
    ) -> Json:
        return self.json(self.call("POST", where, query=query, body=body))

    def read_on(
        self, page: Json, where: str, query: Mapping[str, object], rows: str, most: int
    ) -> None:
        """Adds the rows of the pages that follow, until there are `most` or no more."""
        while len(page[rows]) < most and (token := page.get("next_page_token")):
            following = self.get(where, {**query, "page_token": token})
            page[rows] += following[rows]
            page["next_page_token"] = following.get("next_page_token")

    def put(self, where: str, body: object, query: Mapping[str, object]) -> Json:
        return self.json(self.call("PUT", where, query=query, body=body))

    def delete(self, where: str, query: Mapping[str, object] | None = None) -> Json:
        return self.json(self.call("DELETE", where, query=query))

    def call(
        self,
        method: str,
        where: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Response:
        """One request, its body as JSON, or bytes as they are; any answer of 400 and above is
        raised as Refused."""
        sent = body if body is None or isinstance(body, bytes) else _encoded(body)
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = self._headers | ({} if body is None else {"content-type": kind})
        with self._in_words(timeout_s):
            made = ApiCall(method, f"{self._prefix}{where}", _given(query), headers, sent)
            response = self._http.request(made, timeout_s)
        if response.status_code >= 400:
            raise _refusal(response)
        return response

    @contextmanager
    def stream(
        self, where: str, query: Mapping[str, object], headers: Mapping[str, str]
    ) -> Iterator[Response]:
        """A GET whose body is read piece by piece; errors of both are told alike."""
        sent = {**self._headers, **headers}
        made = ApiCall("GET", f"{self._prefix}{where}", _given(query), sent)
        with self._in_words(TIMEOUT_S), self._http.stream(made) as response:
            if response.status_code >= 400:
                response.read()
                raise _refusal(response)
            yield response

    @contextmanager
    def _in_words(self, timeout_s: float) -> Iterator[None]:
        try:
            yield
        except NobodyListens as error:
            raise Unreachable(self._nobody()) from error
        except NoAnswerInTime as error:
            raise Unreachable(
                f"the {self._what} at {self.address} did not answer within {timeout_s:g} s"
            ) from error
        except CannotBeSent as error:
            raise ZenError(str(error)) from error  # no use in trying again
        except CallFailed as error:
            raise Unreachable(f"the {self._what} at {self.address} failed: {error}") from error

    def _nobody(self) -> str:
        running = home().read()
        if running is not None and running.api == self.address and alive(running.pid):
            return (
                f"nothing answers at {self.address} at the moment, but {PROGRAM} up runs (pid "
                f"{running.pid}) and starts again what died: try again, or see {PROGRAM} status"
            )
        return (
            f"nothing runs at {self.address}: start it with {PROGRAM} up"
            " (or name another address with --api or ZEN_API)"
        )

    def json(self, response: Response) -> Json:
        """The answer as an object."""
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise Unreachable(
                f"what answers at {self.address} is not the {self._what} of this scheduler"
            )
        return body


def _encoded(body: object) -> bytes:
    """The body as JSON; values that JSON cannot hold are named."""
    faults = list(_unsendable("", body))
    if faults:
        raise BadInput(faults)
    return json.dumps(body, ensure_ascii=False).encode()


def _unsendable(field: str, value: object) -> Iterator[Fault]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _unsendable(f"{field}.{name}" if field else str(name), inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _unsendable(field, inner)
    elif isinstance(value, float) and not math.isfinite(value):
        yield Fault(field, str(value), "a finite number")
    elif isinstance(value, date):
        yield Fault(field, str(value), "a text: put it in quotes")
    elif isinstance(value, str) and not value.isprintable() and _undecoded(value):
        yield Fault(field, ascii(value), "text in UTF-8")


def _undecoded(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _given(query: Mapping[str, object] | None) -> dict[str, Any]:
    return {key: value for key, value in (query or {}).items() if value is not None}


def _refusal(response: Response) -> Refused:
    status = response.status_code
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return Refused(status, "error", f"the API answered {status} {response.reason_phrase}")
    message = body.get("message") or body.get("error") or body.get("detail") or f"status {status}"
    usd = body.get("total_usd_per_hour")
    usd_per_hour = float(usd) if isinstance(usd, int | float) else None
    return Refused(status, str(body.get("code", "error")), str(message), usd_per_hour)
