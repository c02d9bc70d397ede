"""Google's token services and a bucket, served on loopback: the scheduler's machine has the account
that owns buckets, a VM has another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from aiohttp import web
from google.auth.credentials import Credentials

from core.clock import SystemClock
from sim.cloud.access_tokens import PretendTokens
from sim.cloud.storage import PretendStorage
from tests.sim.helpers import HandClock

SCHEDULER = "scheduler@zen-test.iam.gserviceaccount.com"


@dataclass
class Google:
    """What is served, and where."""

    url: str
    tokens: PretendTokens
    storage: PretendStorage
    clock: HandClock


class SchedulerCredentials(Credentials):
    """The scheduler's account. The library reads the address of a metadata server once for the
    whole process, so that these stand for it here."""

    def __init__(self, tokens: PretendTokens) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # google-auth's
        self._tokens = tokens

    def refresh(self, request: object) -> None:  # nothing is asked
        said = self._tokens.own(SCHEDULER)
        self.token = said["access_token"]
        ends_at = self._tokens.clock() + self._tokens.life_s
        self.expiry = datetime.fromtimestamp(ends_at, UTC).replace(tzinfo=None)


@asynccontextmanager
async def google(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Google]:
    """The store and google-auth find it."""
    clock = HandClock(SystemClock().now().timestamp())
    tokens = PretendTokens(SCHEDULER, clock)
    storage, app = PretendStorage(tokens), web.Application()
    tokens.add_routes(app)
    storage.add_routes(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", url)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setattr(
        "google.auth.default", lambda **_: (SchedulerCredentials(tokens), "zen-test")
    )
    try:
        yield Google(url, tokens, storage, clock)
    finally:
        await runner.cleanup()
