"""How this VM shows itself to a registry of images: Docker's own settings, else, for Google's
registries, the VM's service account. podman's service also knows settings of its own.

A client that may submit a job may run what the VM may pull: give its service account no more.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

GOOGLE = (".pkg.dev", "gcr.io")
TOKEN_USER = "oauth2accesstoken"  # noqa: S105  # Google's name for "the password is a token"
SETTINGS_BYTES_MAX = 1024 * 1024

Token = Callable[[], Awaitable[str]]
"""An access token of the VM; empty if it has none."""


async def auth_for(image: str, environ: Mapping[str, str], token: Token) -> str:
    """The X-Registry-Auth header for the image; empty: ask as a stranger."""
    host = registry_of(image)
    if not host:
        return ""  # the runtime's own choice: it knows best how to ask there
    said = _from_settings(host, environ)
    if said is None and _is_google(host) and (word := await token()):
        said = (TOKEN_USER, word)
    if said is None:
        return ""
    words = {"username": said[0], "password": said[1], "serveraddress": host}
    return base64.urlsafe_b64encode(json.dumps(words).encode()).decode()


def registry_of(image: str) -> str:
    """The first part, if it is a host: it has a dot or a port, or is localhost; else empty."""
    first, slash, _ = image.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return first if is_host else ""


def _is_google(host: str) -> bool:
    return host.endswith((GOOGLE[0], f".{GOOGLE[1]}")) or host == GOOGLE[1]


def _from_settings(host: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    home = environ.get("DOCKER_CONFIG") or f"{environ.get('HOME', '/')}/.docker"
    try:
        with (Path(home) / "config.json").open("rb") as file:
            settings = json.loads(file.read(SETTINGS_BYTES_MAX))
        found = settings["auths"]
        entry = next(found[name] for name in (host, f"https://{host}") if name in found)
        user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None  # no settings, none for this host, or a helper that keeps them elsewhere
    return user, password
