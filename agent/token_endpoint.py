"""The token endpoint of one job: the part of Google's metadata protocol by which libraries find
tokens, on a port of the VM's loopback that serves the job's user alone.

The metadata server of the VM is closed to jobs. What this one hands out is the tenant's account's
token, never the VM's.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from core.clock import SystemClock
from core.job_tokens import AccessToken, TokenKind, Tokens
from core.messages import StartJob
from messaging.connection_owners import owner_of

HOST = "127.0.0.1"
HEAD_BYTES_MAX = 16 * 1024
CALL_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 64
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ROOT = "/computeMetadata/v1/"
ACCOUNTS = "instance/service-accounts/"
_FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """One answer."""

    status: int
    body: str
    kind: str = "application/text"


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """What is asked: the target of a GET, and its headers by lower-case names."""

    method: str
    target: str
    headers: Mapping[str, str]


def answer(request: MetadataRequest, token: AccessToken | None, now: float) -> EndpointAnswer:
    """Pure: as the metadata server of a VM with that account would answer."""
    if request.method != "GET":
        return EndpointAnswer(405, "only GET\n")
    if request.headers.get("metadata-flavor") != "Google":
        return EndpointAnswer(403, "Missing required header: Metadata-Flavor: Google\n")
    if "x-forwarded-for" in request.headers:
        return EndpointAnswer(403, "Requests with X-Forwarded-For are refused\n")
    if token is None or token.ends_at <= now:
        return EndpointAnswer(503, "the token has ended and no new one has come yet\n")
    parts = urlsplit(request.target)
    if parts.path in ("", "/"):
        return EndpointAnswer(200, "computeMetadata/\n")
    path = parts.path.removeprefix(ROOT)
    if path.startswith(ACCOUNTS):
        recursive = parse_qs(parts.query).get("recursive", [""])[0].lower() == "true"
        return _account(path.removeprefix(ACCOUNTS), token, now, recursive=recursive)
    found = {
        "project/project-id": token.account.partition("@")[2].partition(".")[0],
        "universe/universe-domain": "googleapis.com",
    }.get(path)
    return EndpointAnswer(200, found) if found else EndpointAnswer(404, f"{path} was not found\n")


def _account(path: str, token: AccessToken, now: float, *, recursive: bool) -> EndpointAnswer:
    name, _, what = path.partition("/")
    if not name:
        return EndpointAnswer(200, f"default/\n{token.account}/\n")
    if name not in ("default", token.account):
        return EndpointAnswer(404, f"{name} was not found\n")
    if what == "token":
        said: Mapping[str, object] = {
            "access_token": token.value,
            "expires_in": int(token.ends_at - now),
            "token_type": "Bearer",
        }
        return EndpointAnswer(200, json.dumps(said), "application/json")
    if not what and recursive:
        said = {"aliases": ["default"], "email": token.account, "scopes": [SCOPE]}
        return EndpointAnswer(200, json.dumps(said), "application/json")
    found = {
        "": "aliases\nemail\nscopes\ntoken\n",
        "aliases": "default\n",
        "email": token.account,
        "scopes": f"{SCOPE}\n",
    }.get(what)
    # No identity tokens: they would speak for the account towards anybody.
    return EndpointAnswer(200, found) if found else EndpointAnswer(404, f"{what} was not found\n")


class TokenEndpoint:
    """Serves `uid` alone; `token` is asked each time, since it is renewed."""

    def __init__(self, uid: int, token: Callable[[], AccessToken | None]) -> None:
        self._uid, self._token = uid, token
        self._server: asyncio.Server | None = None
        self._open = 0
        self._clock = SystemClock()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=HEAD_BYTES_MAX)

    @property
    def environment(self) -> dict[str, str]:
        """What leads Google's libraries and gcloud here."""
        assert self._server is not None, "it was started"
        address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"
        names = ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT")
        return dict.fromkeys(names, address)

    def told_to(self, order: StartJob) -> StartJob:
        """The order, with these variables in the job's environment."""
        environment = {**order.spec.environment, **self.environment}
        return replace(order, spec=replace(order.spec, environment=environment))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # First of all: another user must not take the connections that the job may have.
        if not self._is_the_jobs(writer):
            writer.close()
            return
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await self._exchange(reader, writer)
        except (OSError, TimeoutError, ValueError, EOFError, asyncio.LimitOverrunError):
            pass  # the job's own affair
        finally:
            self._open -= 1
            with suppress(OSError):
                writer.close()

    def _is_the_jobs(self, writer: asyncio.StreamWriter) -> bool:
        there, here = (writer.get_extra_info(name) for name in ("peername", "sockname"))
        if not there or not here:
            return False  # it was gone before it was looked at
        return owner_of(there[:2], here[:2]) == self._uid

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = parsed((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
        said = answer(request, self._token(), self._clock.now().timestamp())
        body = said.body.encode()
        headers = {
            **_FLAVOR,
            "Content-Type": said.kind,
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        lines = [f"HTTP/1.1 {said.status} {HTTPStatus(said.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()


async def endpoint_for(
    order: StartJob, uid: int | None, held: Mapping[str, Tokens]
) -> TokenEndpoint:
    """For one attempt, until it is closed. `uid`: of the job; None: it runs as we do. `held`: the
    tokens by lease."""

    def token() -> AccessToken | None:
        return held.get(order.lease_id, {}).get(TokenKind.GOOGLE)

    endpoint = TokenEndpoint(os.geteuid() if uid is None else uid, token)
    await endpoint.start()
    return endpoint


def parsed(head: str) -> MetadataRequest:
    """ValueError for what is no request."""
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return MetadataRequest(method, target, headers)
