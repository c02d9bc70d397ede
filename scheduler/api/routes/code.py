"""Code of jobs: sent in packs of chunks, then named by the list of a directory. A caller who may
submit for the tenant may send it; nobody else learns what is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct
from starlette.requests import Request

from core.access import Right
from core.code_store import CodeTree
from core.errors import BadInput, Fault, NotFound
from core.submission import shown
from scheduler.access.authenticator import NotAllowed
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import Body, Routes, refuse_encodings, route
from scheduler.api.http.params import Param, Query
from scheduler.api.http.problems import TooBusy, TooLarge, WrongMediaType
from scheduler.api.services import Services
from scheduler.uploads.code_trees import CodeTrees
from stores.code_trees import LIST_BODY_MAX, PACK_BODY_MAX, TREE_ID

BINARY = "application/octet-stream"
TENANT_HELD_MAX = 64 * 1024 * 1024
HELD_MAX = 4 * TENANT_HELD_MAX
"""Bytes of bodies that are in memory at the same time."""
_TENANT = Param("tenant_id", "text", "Whose; without it your tenant.")
_BYTES = {"type": "string", "format": "binary"}


class CodeTreeOut(Struct, frozen=True):
    """A directory that a job can be given."""

    tenant_id: str
    tree_id: str
    """For the field `code` of a job."""
    files: int
    bytes: int
    missing: tuple[tuple[int, int], ...] = ()
    """First and last of each row of chunks that have to be sent before: their numbers in the list,
    each chunk counted once. None: jobs may be given it."""


class CodePackOut(Struct, frozen=True):
    """Chunks are stored."""

    chunks: int
    new: int
    """How many of them the tenant did not have."""


class CodeUsageOut(Struct, frozen=True):
    """The code of a tenant, as it is stored, and what is taken of it."""

    tenant_id: str
    trees: int
    packs: int
    bytes: int
    bytes_max: int
    tree_bytes_max: int
    """Of one directory."""
    tree_files_max: int


class CodeRoutes(Routes):
    """Code of jobs."""

    tag = "code"

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._held = Counter[str]()
        """Tenant → bytes of its bodies that are read or checked."""

    @route(
        "GET /api/v1/code",
        Right.JOBS_SUBMIT,
        "What there is.",
        params=(_TENANT,),
        errors=(404,),
    )
    async def usage(self, query: Query, caller: ApiCaller) -> CodeUsageOut:
        """How much code the tenant has sent, and how much it may."""
        tenant_id = _tenant(query, caller)
        used, rules = await self._trees().usage(tenant_id)
        return CodeUsageOut(
            tenant_id=tenant_id,
            trees=used.trees,
            packs=used.packs,
            bytes=used.size,
            bytes_max=rules.tenant_max_bytes,
            tree_bytes_max=rules.tree_max_bytes,
            tree_files_max=rules.tree_max_files,
        )

    @route(
        "GET /api/v1/code/trees/{tree_id}",
        Right.JOBS_SUBMIT,
        "Jobs may be given it.",
        params=(_TENANT,),
        errors=(404,),
    )
    async def find(self, request: Request, query: Query, caller: ApiCaller) -> CodeTreeOut:
        """Whether the tenant has sent this directory before."""
        tenant_id, wanted = _tenant(query, caller), _tree_id(request)
        found = await self._trees().find(tenant_id, wanted)
        if found is None:
            raise NotFound(f"tenant {tenant_id} has sent no code {wanted}")
        return _shown(found)

    @route(
        "PUT /api/v1/code/trees/{tree_id}",
        Right.JOBS_SUBMIT,
        "What is missing; nothing: jobs may be given it.",
        params=(_TENANT,),
        body=Body(_BYTES, "code list", only=(BINARY,)),
        errors=(404, 409),
    )
    async def put(self, request: Request, query: Query, caller: ApiCaller) -> CodeTreeOut:
        """Name a directory by its list, compressed with zstd: `{"files": [[path, executable, size,
        [SHA-256 of each 4 MiB]]…], "links": [[path, target]…], "version": 1}`, by path.

        Its id is the SHA-256 of the list."""
        tenant_id, wanted, trees = _tenant(query, caller), _tree_id(request), self._trees()
        async with self._body(request, tenant_id, LIST_BODY_MAX) as body, trees.turn:
            offered = await trees.offer(tenant_id, wanted, body)
        return _shown(offered.tree, offered.missing)

    @route(
        "POST /api/v1/code/packs",
        Right.JOBS_SUBMIT,
        "They are stored.",
        params=(_TENANT,),
        body=Body(_BYTES, "code pack", only=(BINARY,)),
        errors=(404, 409),
    )
    async def post(self, request: Request, query: Query, caller: ApiCaller) -> CodePackOut:
        """Send chunks, compressed together with zstd: how many (4 bytes, little endian), the size
        of each, then all of them. A repeat does no harm."""
        tenant_id, trees = _tenant(query, caller), self._trees()
        async with self._body(request, tenant_id, PACK_BODY_MAX) as body, trees.turn:
            chunks, new = await trees.take_pack(tenant_id, body)
        return CodePackOut(chunks, new)

    @asynccontextmanager
    async def _body(self, request: Request, tenant_id: str, most: int) -> AsyncIterator[bytes]:
        """Whole, before it waits to be checked: a slow client holds up nobody. TooBusy: bodies of
        the tenant, or of all, would take more memory than there is for them."""
        declared = request.headers.get("content-length", "")
        size = min(int(declared), most) if declared.isdigit() else most
        if self._held[tenant_id] + size > TENANT_HELD_MAX or self._held.total() + size > HELD_MAX:
            raise TooBusy("too much code is being sent at once; try again")
        self._held[tenant_id] += size
        try:
            yield await _read(request, most)
        finally:
            self._held[tenant_id] -= size
            if not self._held[tenant_id]:
                del self._held[tenant_id]

    def _trees(self) -> CodeTrees:
        if self._services.code is None:
            raise NotFound("this deployment takes no code: no store is configured")
        return self._services.code


async def _read(request: Request, bytes_max: int) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != BINARY:
        raise WrongMediaType(f"Content-Type: got {kind[:80]!r}, expected {BINARY}")
    refuse_encodings(request)
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > bytes_max:
            raise TooLarge(f"the body has at most {bytes_max} bytes")
    return bytes(raw)


def _tree_id(request: Request) -> str:
    wanted = str(request.path_params["tree_id"])
    if TREE_ID.match(wanted) is None:
        expected = "the SHA-256 of a list: 64 hexadecimal digits"
        raise BadInput([Fault("tree_id", shown(wanted), expected)])
    return wanted


def _tenant(query: Query, caller: ApiCaller) -> str:
    tenant_id = query.text("tenant_id") or caller.home_tenant
    if tenant_id in caller.tenants:
        return tenant_id
    raise NotAllowed(f"tenant_id: you may not submit for {tenant_id[:80]}")


def _shown(tree: CodeTree, missing: tuple[tuple[int, int], ...] = ()) -> CodeTreeOut:
    return CodeTreeOut(tree.tenant_id, tree.tree_id, tree.files, tree.size, missing)
