"""google-cloud-compute, loaded when it is needed and never on the event loop.

The import takes seconds and 170 MB, so only the process that scales pays for it, in the
background.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import requests
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from requests.adapters import HTTPAdapter

from core.errors import CloudBusy
from migs.errors import translate

LOAD_MAX_S = 60.0
CONNECTIONS = 40
SWITCH_S = 0.0005
"""How soon the importing thread gives way to the event loop; Python's own 5 ms, paid at each of
the dozens of waits in a request, would make a third of a second."""


@dataclass(frozen=True, slots=True)
class ComputeClients:
    """Google's clients of what we use; each has its own connections."""

    groups: Any
    requests: Any
    """Resize requests."""
    advice: Any
    operations: Any
    """What became of calls that were accepted."""


class ComputeLibrary:
    """The clients, made once; a failure is tried again by the next caller."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint.rstrip("/") if endpoint else None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute-import")
        self._loading: asyncio.Future[ComputeClients] | None = None

    def start(self) -> asyncio.Future[ComputeClients]:
        """Begin to load, if nobody has; returns at once."""
        failed = (
            self._loading is not None
            and self._loading.done()
            and (self._loading.cancelled() or self._loading.exception() is not None)
        )
        if self._loading is None or failed:
            loop = asyncio.get_running_loop()
            self._loading = loop.run_in_executor(self._thread, _make_clients, self._endpoint)
        return self._loading

    async def clients(self) -> ComputeClients:
        """The clients, after the import if it is still under way."""
        try:
            return await asyncio.wait_for(asyncio.shield(self.start()), LOAD_MAX_S)
        except TimeoutError as exc:
            raise CloudBusy(f"google-cloud-compute is not loaded after {LOAD_MAX_S:g} s") from exc
        except GoogleAuthError as exc:
            raise translate(exc, write=False) from exc

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _make_clients(endpoint: str | None) -> ComputeClients:
    with _giving_way():
        return _import_and_make(endpoint)


@contextmanager
def _giving_way() -> Iterator[None]:
    """While the library loads the service works: no collector walks over what is being made, and
    afterwards none ever does, because the library stays for good."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
        sys.setswitchinterval(usual_s)


def _import_and_make(endpoint: str | None) -> ComputeClients:
    from google.cloud import compute_v1  # noqa: PLC0415  # see the module

    return ComputeClients(
        groups=_client(compute_v1.RegionInstanceGroupManagersClient, endpoint),
        requests=_client(compute_v1.RegionInstanceGroupManagerResizeRequestsClient, endpoint),
        advice=_client(compute_v1.AdviceClient, endpoint),
        operations=_client(compute_v1.RegionOperationsClient, endpoint),
    )


def _client(kind: Any, endpoint: str | None) -> Any:
    options = ClientOptions(api_endpoint=endpoint) if endpoint else None
    if endpoint is None or not endpoint.startswith("http://"):
        client = kind(client_options=options)
        _keep_connections(client.transport._session)  # noqa: SLF001  # no public way to it
        return client
    # A plain-text endpoint is one of our own, near by: a token must not travel to it.
    client = kind(
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        client_options=options,
    )
    session = client.transport._session  # noqa: SLF001  # no public way to it
    # requests would send even loopback calls through HTTP_PROXY, which cannot reach it.
    session.trust_env = False
    _keep_connections(session)
    return client


def _keep_connections(session: requests.Session) -> None:
    """One for each region that is looked at in the same moment: requests keeps ten, and pays a new
    handshake for every other call. An adapter that is not plain (client certificates) stays."""
    for prefix, adapter in list(session.adapters.items()):
        if type(adapter) is HTTPAdapter:
            session.mount(prefix, HTTPAdapter(pool_maxsize=CONNECTIONS))
