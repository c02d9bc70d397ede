"""The port behind which is known what code tenants have sent, and where its chunks lie."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from core.errors import Conflict

GB = 1000**3


@dataclass(frozen=True, slots=True)
class CodeRules:
    """How much code is taken. Nothing is removed by itself yet."""

    tree_max_gb: int = 2
    """One directory that a job is given; a larger one is refused, and its largest files named."""
    tree_max_files: int = 100_000
    """Files of one directory."""
    tenant_max_gb: int = 100
    """All packs of one tenant, as they are stored. Nothing of it is removed yet: a tenant that has
    so much needs a higher bound before it can send more."""

    @property
    def tree_max_bytes(self) -> int:
        return self.tree_max_gb * GB

    @property
    def tenant_max_bytes(self) -> int:
        return self.tenant_max_gb * GB


CODE_BOUNDS = {
    "tree_max_gb": (1, 1000),
    "tree_max_files": (1, 200_000),
    "tenant_max_gb": (1, 1_000_000),
}
"""The least and the most of each."""


@dataclass(frozen=True, slots=True)
class CodePack:
    """One stored object with many chunks."""

    tenant_id: str
    pack_id: str
    size: int
    """As it is stored."""
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CodeTree:
    """A directory that jobs of the tenant can be given."""

    tenant_id: str
    tree_id: str
    files: int
    size: int
    created_at: datetime
    used_at: datetime
    """When it was last sent or submitted with."""


def too_much(tenant_id: str, tenant_max_bytes: int) -> Conflict:
    """The tenant's bound is reached."""
    return Conflict(
        f"tenant {tenant_id} has {tenant_max_bytes / GB:g} GB of code, all that it may have: "
        "an operator can raise code.tenant_max_gb"
    )


class CodeUsage(NamedTuple):
    """What a tenant has."""

    trees: int
    packs: int
    size: int
    """As it is stored."""


class SentChunk(NamedTuple):
    """A piece of a file."""

    sha256: str
    size: int


class ChunkPlace(NamedTuple):
    """Where a chunk lies."""

    pack_id: str
    number: int
    """Its position in the pack."""
    size: int


class CodeStore(Protocol):
    """Every call may raise StoreDown. A tenant's code is not there for others. What is begun and
    never ended may have an object that nobody reads; nothing removes it yet."""

    async def begin_pack(self, pack: CodePack, tenant_max_bytes: int) -> None:
        """Before its object is stored. Conflict: the tenant has too much."""
        ...

    async def end_pack(self, tenant_id: str, pack_id: str, chunks: Sequence[SentChunk]) -> int:
        """Its object is stored: its chunks are known from now on. How many were new."""
        ...

    async def places(self, tenant_id: str, chunks: Sequence[str]) -> Mapping[str, ChunkPlace]:
        """Those of the chunks that the tenant has sent."""
        ...

    async def begin_tree(self, tree: CodeTree, packs: Collection[str]) -> bool:
        """Before its list is stored: from now on its packs stay. False: one is gone meanwhile."""
        ...

    async def end_tree(self, tenant_id: str, tree_id: str) -> None:
        """Its list is stored: jobs may be given it."""
        ...

    async def usage(self, tenant_id: str) -> CodeUsage: ...

    async def use_tree(self, tenant_id: str, tree_id: str, now: datetime) -> CodeTree | None:
        """The tree, which is used now; None: the tenant has none of that id."""
        ...
