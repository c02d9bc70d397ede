"""Tokens in control messages: the mark in the outbox, and what the sealed message has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from core.job_tokens import AccessToken, TokenKind, TokenRequest, Tokens
from core.messages import OutMessage
from messaging import wire

TOKENS = "tokens"
"""In the outbox alone: the kinds of tokens that are put in when the message is sent."""
_NAMED = ("job_id", "user_id", "attempt", "lease_id", "tenant_id", "rank")


def wanting(message: OutMessage, kinds: Collection[TokenKind]) -> OutMessage:
    """The message for the outbox, with the kinds of tokens that it needs when it is sent."""
    if not kinds:
        return message
    return replace(message, attributes={**message.attributes, TOKENS: " ".join(sorted(kinds))})


def wanted_tokens(message: OutMessage) -> TokenRequest:
    """Of a start, or of a renewal."""
    body = wire.from_bytes(message.body, wire.WireTokens)
    kinds = tuple(TokenKind(word) for word in message.attributes[TOKENS].split())
    named = {name: getattr(body, name) for name in _NAMED}
    return TokenRequest(**named, kinds=kinds)


def with_tokens(message: OutMessage, tokens: Tokens) -> OutMessage:
    """As its VM gets it: sealed before it is sent, as a start with secrets is."""
    body = wire.from_bytes(message.body, dict[str, object])
    attributes = {name: word for name, word in message.attributes.items() if name != TOKENS}
    words = {
        str(kind): {"value": one.value, "ends_at": one.ends_at, "account": one.account}
        for kind, one in tokens.items()
    }
    data = wire.to_bytes("control", {**body, "tokens": words})
    return replace(message, body=data, attributes=attributes)


def tokens_from(words: Mapping[str, wire.WireToken]) -> Tokens:
    """Kinds that a newer scheduler knows are passed over."""
    known = frozenset(TokenKind)
    return {
        TokenKind(kind): AccessToken(one.value, one.ends_at, one.account)
        for kind, one in words.items()
        if kind in known
    }
