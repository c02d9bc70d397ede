"""The store as one attempt may use it: with its own token, for its own files."""

from __future__ import annotations

from collections.abc import MutableMapping

from core.job_tokens import TokenKind, Tokens
from core.messages import StartJob
from stores.base import FileStore


def store_for(order: StartJob, store: FileStore, held: MutableMapping[str, Tokens]) -> FileStore:
    """Without a token: as the VM's account may use it. `held`: the tokens by lease, which are
    renewed there."""
    if order.tokens:
        held[order.lease_id] = order.tokens
    if TokenKind.STORE not in order.tokens:
        return store

    def token() -> str:
        # Empty when the attempt is gone: the store refuses what comes so late.
        kept = held.get(order.lease_id, {}).get(TokenKind.STORE)
        return kept.value if kept is not None else ""

    return store.scoped(token)
