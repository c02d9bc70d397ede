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
from typing import Any

from google.auth.exceptions import GoogleAuthError

from core.errors import CloudBusy
from migs.errors import translate

LOAD_MAX_S = 60.0
SWITCH_S = 0.0005
"""How soon the importing thread gives way to the event loop; Python's own 5 ms, paid at each of
the dozens of waits in a request, would make a third of a second."""


class Library:
    """The client of regional groups, made once; a failure is tried again by the next caller."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint.rstrip("/") if endpoint else None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute-import")
        self._loading: asyncio.Future[Any] | None = None

    def start(self) -> asyncio.Future[Any]:
        """Begin to load, if nobody has; returns at once."""
        failed = (
            self._loading is not None
            and self._loading.done()
            and (self._loading.cancelled() or self._loading.exception() is not None)
        )
        if self._loading is None or failed:
            loop = asyncio.get_running_loop()
            self._loading = loop.run_in_executor(self._thread, _make_client, self._endpoint)
        return self._loading

    async def client(self) -> Any:
        """The client, after the import if it is still under way."""
        try:
            return await asyncio.wait_for(asyncio.shield(self.start()), LOAD_MAX_S)
        except TimeoutError as exc:
            raise CloudBusy(f"google-cloud-compute is not loaded after {LOAD_MAX_S:g} s") from exc
        except GoogleAuthError as exc:
            raise translate(exc, write=False) from exc

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _make_client(endpoint: str | None) -> Any:
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


def _import_and_make(endpoint: str | None) -> Any:
    from google.api_core.client_options import ClientOptions  # noqa: PLC0415  # see the module
    from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415  # see the module
    from google.cloud import compute_v1  # noqa: PLC0415  # see the module

    options = ClientOptions(api_endpoint=endpoint) if endpoint else None
    if endpoint is None or not endpoint.startswith("http://"):
        return compute_v1.RegionInstanceGroupManagersClient(client_options=options)
    # A plain-text endpoint is one of our own, near by: a token must not travel to it.
    client: Any = compute_v1.RegionInstanceGroupManagersClient(
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        client_options=options,
    )
    # requests would send even loopback calls through HTTP_PROXY, which cannot reach it.
    client.transport._session.trust_env = False  # noqa: SLF001  # no public way to the session
    return client
