"""A pretend Cloud Storage: objects in memory behind the JSON API, for callers whose token opens
them."""

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from aiohttp import web

from sim.cloud.access_tokens import PretendTokens

OBJECTS: Final = "/storage/v1/b/{bucket}/o"
UPLOADS: Final = "/upload/storage/v1/b/{bucket}/o"
BYTES_MAX: Final = 256 * 1024 * 1024
"""Of all objects."""
BODY_MAX: Final = 32 * 1024 * 1024
PAGE: Final = 1000


@dataclass(slots=True)
class _Upload:
    """A resumable one: its address is its right."""

    bucket: str
    name: str
    data: bytearray = field(default_factory=bytearray)


class PretendStorage:
    """Buckets exist as soon as something is stored there."""

    def __init__(self, tokens: PretendTokens) -> None:
        self._tokens = tokens
        self.objects: dict[tuple[str, str], bytes] = {}
        self._uploads: dict[str, _Upload] = {}

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get(OBJECTS, self._list)
        app.router.add_get(OBJECTS + "/{name:.+}", self._media)
        app.router.add_delete(OBJECTS + "/{name:.+}", self._delete)
        app.router.add_post(UPLOADS, self._post)
        app.router.add_put(UPLOADS, self._put)

    def _refused(
        self, request: web.Request, *, name: str | None = None, listed: str | None = None
    ) -> web.Response | None:
        grant = self._tokens.of(request)
        if grant is None:
            return _error(401, "no valid token")
        bucket = request.match_info["bucket"]
        owner = grant.account == self._tokens.scheduler
        write = request.method not in ("GET", "HEAD")
        if not owner or not grant.opens(bucket, name=name, listed=listed, write=write):
            return _error(403, f"{grant.account} has no access to the object")
        return None

    async def _post(self, request: web.Request) -> web.Response:
        bucket, name = request.match_info["bucket"], request.query["name"]
        if (refused := self._refused(request, name=name)) is not None:
            return refused
        if request.query["uploadType"] == "resumable":
            upload_id = secrets.token_urlsafe(16)
            self._uploads[upload_id] = _Upload(bucket, name)
            url = request.url.with_query({"uploadType": "resumable", "upload_id": upload_id})
            return web.json_response({}, headers={"Location": str(url)})
        if request.query.get("ifGenerationMatch") == "0" and (bucket, name) in self.objects:
            return _error(412, "it exists")
        return self._stored(bucket, name, await _body(request))

    async def _put(self, request: web.Request) -> web.Response:
        """A piece of a resumable upload: bytes that are here already are ignored."""
        upload = self._uploads.get(request.query.get("upload_id", ""))
        if upload is None:
            return _error(404, "no such upload")
        data, have = await _body(request), upload.data
        span, _, total = request.headers["Content-Range"].removeprefix("bytes ").partition("/")
        first = int(span.partition("-")[0])
        have += data[len(have) - first :]
        if total != "*" and len(have) == int(total):
            del self._uploads[request.query["upload_id"]]
            return self._stored(upload.bucket, upload.name, bytes(have))
        return web.Response(status=308, headers={"Range": f"bytes=0-{len(have) - 1}"})

    def _stored(self, bucket: str, name: str, data: bytes) -> web.Response:
        if sum(map(len, self.objects.values())) + len(data) > BYTES_MAX:
            return _error(429, "the pretend bucket is full")
        self.objects[bucket, name] = data
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        about = {"name": name, "size": str(len(data)), "md5Hash": base64.b64encode(md5).decode()}
        return web.json_response(about)

    async def _media(self, request: web.Request) -> web.Response:
        name = _name_of(request)
        if (refused := self._refused(request, name=name)) is not None:
            return refused
        data = self.objects.get((request.match_info["bucket"], name))
        if data is None:
            return _error(404, "no such object")
        span = request.headers.get("Range", "").removeprefix("bytes=")
        first, _, last = span.partition("-")
        if not first:
            return web.Response(body=data)
        if int(first) >= len(data):
            return _error(416, "beyond its end")
        return web.Response(status=206, body=data[int(first) : int(last or len(data)) + 1])

    async def _delete(self, request: web.Request) -> web.Response:
        name = _name_of(request)
        if (refused := self._refused(request, name=name)) is not None:
            return refused
        if self.objects.pop((request.match_info["bucket"], name), None) is None:
            return _error(404, "no such object")
        return web.Response(status=204)

    async def _list(self, request: web.Request) -> web.Response:
        query, bucket = request.query, request.match_info["bucket"]
        prefix = query.get("prefix", "")
        if (refused := self._refused(request, listed=prefix)) is not None:
            return refused
        begin = max(query.get("startOffset", ""), query.get("pageToken", ""))
        names = sorted(
            name
            for at, name in self.objects
            if at == bucket and name.startswith(prefix) and name >= begin
        )
        if query.get("delimiter"):
            folders = {prefix + name.removeprefix(prefix).split("/")[0] + "/" for name in names}
            return web.json_response({"prefixes": sorted(folders)})
        page, rest = names[:PAGE], names[PAGE:]
        sizes = [{"name": name, "size": str(len(self.objects[bucket, name]))} for name in page]
        more = {"nextPageToken": rest[0]} if rest else {}
        return web.json_response({"items": sizes, **more})


def _name_of(request: web.Request) -> str:
    """Of the path as it was sent: names have percent signs of their own."""
    return unquote(request.rel_url.raw_path.partition("/o/")[2])


async def _body(request: web.Request) -> bytes:
    """Files are larger than what the other services are sent."""
    data = bytearray()
    async for piece in request.content.iter_any():
        data += piece
        if len(data) > BODY_MAX:
            raise web.HTTPRequestEntityTooLarge(BODY_MAX, len(data))
    return bytes(data)


def _error(status: int, words: str) -> web.Response:
    return web.json_response({"error": {"code": status, "message": words}}, status=status)
