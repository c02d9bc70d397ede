"""uvicorn as a replica runs it: its own sockets, its own signals, bounded connections."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from config.settings import ApiSettings
from core.errors import ZenError
from scheduler.api.http.connections import ConnectionLimits, bounded

DRAIN_S = 3.0
KEEP_ALIVE_S = 5
_HSTS = ("Strict-Transport-Security", "max-age=31536000")
_FILES_MAX = 65_536
_OTHER_FILES = 256
"""Descriptors that the database, the bus and the store need beside the connections."""


class WebServer(uvicorn.Server):
    """Signals are the replica's business, not the web server's."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but a TLS handshake has no more time than a request's head."""
        config, loop = self.config, asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            make: Callable[..., asyncio.Protocol] = config.http_protocol_class
            return make(config=config, server_state=self.server_state, app_state={})

        self.servers = [
            await loop.create_server(
                connection,
                sock=listening,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=ConnectionLimits().head_s if config.ssl else None,
            )
            for listening in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def web_server(app: ASGIApp, api: ApiSettings, limits: ConnectionLimits | None = None) -> WebServer:
    """A server for one socket."""
    limits = limits or ConnectionLimits(connections=min(api.connections_max, _free_files()))
    tls = api.tls
    config = uvicorn.Config(
        app,
        http=bounded(limits),
        ws="none",
        log_config=None,
        access_log=False,
        # A client of loopback could say any address in X-Forwarded-For.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(DRAIN_S),
        lifespan="off",
        ssl_certfile=tls.cert if tls else None,
        ssl_keyfile=tls.key if tls else None,
        headers=[_HSTS] if tls else None,
    )
    try:
        config.load()
    except OSError as error:  # of ssl, too
        files = f"{tls.cert} and {tls.key}" if tls else ""
        raise ZenError(f"api.tls: {files} are no certificate and its key: {error}") from error
    return WebServer(config)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or ZenError that names the address."""
    try:
        listening = socket.create_server((host, port), backlog=2048)
    except OSError as error:
        raise ZenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    # asyncio sets this only on sockets made for TCP by number, which this one is not. Without it
    # every answer on a kept connection waits 40 ms for the client's delayed acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _free_files() -> int:
    """How many connections there can be descriptors for; the process takes all it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return max(_OTHER_FILES, (wanted if soft == resource.RLIM_INFINITY else soft) - _OTHER_FILES)
