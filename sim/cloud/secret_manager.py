"""A pretend Secret Manager: versions of secrets in memory, behind Google's own protocol."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

from aiohttp import web

SECRETS: Final = "/v1/projects/{project}/secrets"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,255}\Z")
VALUE_BYTES_MAX: Final = 64 * 1024
SECRETS_MAX: Final = 1000


class PretendSecretManager:
    """Create a secret, add versions, access, disable: what jobs and tests need of it."""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str], list[bytes | None]] = {}
        """Values by version, the first is 1; None: it was disabled."""
        self.faults: dict[str, int] = {}
        """Project → the status that its secrets are answered with."""

    def add_routes(self, app: web.Application) -> None:
        one = SECRETS + "/{name}"
        app.router.add_post(SECRETS, self._create)
        app.router.add_post(one + ":addVersion", self._add)
        app.router.add_get(one + "/versions/{version}:access", self._access)
        app.router.add_post(one + "/versions/{version}:disable", self._disable)

    async def _create(self, request: web.Request) -> web.Response:
        project, name = request.match_info["project"], request.query.get("secretId", "")
        if _NAME.match(name) is None:
            return _error(400, "INVALID_ARGUMENT", "secretId")
        if (project, name) in self._versions:
            return _error(409, "ALREADY_EXISTS", name)
        if len(self._versions) >= SECRETS_MAX:
            return _error(429, "RESOURCE_EXHAUSTED", "too many secrets")
        self._versions[project, name] = []
        return web.json_response({"name": f"projects/{project}/secrets/{name}"})

    async def _add(self, request: web.Request) -> web.Response:
        versions = self._versions.get(_key(request))
        if versions is None:
            return _error(404, "NOT_FOUND", "secret")
        try:
            body = await request.json()
            value = base64.b64decode(body["payload"]["data"], validate=True)
        except (ValueError, KeyError, TypeError, binascii.Error):
            return _error(400, "INVALID_ARGUMENT", "payload.data")
        if len(value) > VALUE_BYTES_MAX:
            return _error(400, "INVALID_ARGUMENT", "payload.data is too long")
        versions.append(value)
        return web.json_response({"name": f"{_path(request)}/versions/{len(versions)}"})

    async def _access(self, request: web.Request) -> web.Response:
        fault = self.faults.get(request.match_info["project"])
        if fault is not None:
            return _error(fault, "UNAVAILABLE" if fault >= 500 else "PERMISSION_DENIED", "fault")
        number, value = self._version(request)
        if number == 0:
            return _error(404, "NOT_FOUND", "secret version")
        if value is None:
            return _error(400, "FAILED_PRECONDITION", "the version is disabled")
        data = base64.b64encode(value).decode()
        name = f"{_path(request)}/versions/{number}"
        return web.json_response({"name": name, "payload": {"data": data}})

    async def _disable(self, request: web.Request) -> web.Response:
        number, _ = self._version(request)
        if number == 0:
            return _error(404, "NOT_FOUND", "secret version")
        self._versions[_key(request)][number - 1] = None
        return web.json_response({"name": f"{_path(request)}/versions/{number}"})

    def _version(self, request: web.Request) -> tuple[int, bytes | None]:
        """(number, value); 0: there is no such version."""
        versions, word = self._versions.get(_key(request), []), request.match_info["version"]
        number = len(versions) if word == "latest" else int(word) if word.isdecimal() else 0
        return (number, versions[number - 1]) if 0 < number <= len(versions) else (0, None)


def _key(request: web.Request) -> tuple[str, str]:
    return request.match_info["project"], request.match_info["name"]


def _path(request: web.Request) -> str:
    project, name = _key(request)
    return f"projects/{project}/secrets/{name}"


def _error(status: int, word: str, text: str) -> web.Response:
    body: Mapping[str, object] = {"code": status, "status": word, "message": text}
    return web.json_response({"error": body}, status=status)
