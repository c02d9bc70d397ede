"""Who is signed in where: tokens by the address of the API, in a file for its owner alone."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.paths import settings_directory
from core.clock import SystemClock
from core.errors import ZenError

if TYPE_CHECKING:
    from cli.oidc_flows import IssuedTokens, LoginClient
    from core.ports import Clock

FILE_NAME = "sign-in.json"
REFRESH_BEFORE = timedelta(seconds=60)


class BadSignInFile(ZenError):
    """The file cannot be used as it is."""

    code = "bad_sign_in_file"


@dataclass(frozen=True, slots=True)
class SignIn:
    """One person at one API."""

    issuer: str
    client_id: str
    client_secret: str | None
    email: str
    id_token: str
    refresh_token: str | None
    expires_at: str

    @classmethod
    def of(cls, client: LoginClient, issued: IssuedTokens) -> SignIn:
        return cls(
            issuer=client.issuer,
            client_id=client.client_id,
            client_secret=client.client_secret,
            email=issued.email,
            id_token=issued.id_token,
            refresh_token=issued.refresh_token,
            expires_at=issued.expires_at.isoformat(),
        )

    @property
    def client(self) -> LoginClient:
        from cli.oidc_flows import LoginClient

        return LoginClient(self.issuer, self.client_id, self.client_secret)

    def is_over(self, now: datetime) -> bool:
        """Or will be, before a command has ended."""
        return datetime.fromisoformat(self.expires_at) - REFRESH_BEFORE <= now


class SignInFile:
    """Every change replaces the file in one step, under a lock: two commands that refresh at once
    would spend the same refresh token, and issuers take that for theft."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, address: str) -> SignIn | None:
        return self._read().get(address)

    def put(self, address: str, sign_in: SignIn) -> None:
        with self._lock():
            self._write({**self._read(), address: sign_in})

    def forget(self, address: str) -> SignIn | None:
        """What was there."""
        with self._lock():
            known = self._read()
            found = known.pop(address, None)
            self._write(known)
        return found

    def token(self, address: str, clock: Clock) -> str | None:
        """One that still counts, refreshed if need be; None: nobody has signed in there.
        SignInFailed: sign in again."""
        if not self.path.exists():
            return None
        found = self.find(address)
        if found is None or not found.is_over(clock.now()):
            return found.id_token if found else None
        with self._lock():
            found = self.find(address)
            if found is not None and found.is_over(clock.now()):
                found = _refreshed(found, clock)
                self._write({**self._read(), address: found})
        return found.id_token if found else None

    def _read(self) -> dict[str, SignIn]:
        try:
            with self.path.open(encoding="utf-8") as opened:
                if stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o077:
                    raise BadSignInFile(f"others may read {self.path}: chmod 600 it")
                found: Mapping[str, Any] = json.load(opened)
            return {address: SignIn(**given) for address, given in found.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            raise BadSignInFile(f"{self.path} is damaged: delete it, then zen login") from error

    def _write(self, known: Mapping[str, SignIn]) -> None:
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        words = {address: asdict(sign_in) for address, sign_in in known.items()}
        with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
            json.dump(words, out, indent=2)
        fresh.replace(self.path)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def sign_in_file() -> SignInFile:
    return SignInFile(settings_directory() / FILE_NAME)


def token_for(address: str) -> str | None:
    """The token of `zen login` at this API, if somebody is signed in."""
    return sign_in_file().token(address, SystemClock())


def _refreshed(found: SignIn, clock: Clock) -> SignIn:
    from cli.connection import open_http
    from cli.oidc_flows import IssuerClient, SignInFailed

    again = f"{found.email} is not signed in any more: zen login, or zen logout"
    if found.refresh_token is None:
        raise SignInFailed(again)
    with open_http(found.issuer) as http:
        try:
            issued = IssuerClient(found.client, http, clock).by_refresh(found.refresh_token)
        except SignInFailed as error:
            raise SignInFailed(f"{again} ({error})") from error
    return SignIn.of(found.client, issued)
