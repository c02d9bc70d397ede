"""Bytes as text, in one spelling; without cryptography, so that the codec may use it."""

from __future__ import annotations

import base64
import binascii


class BadKey(ValueError):
    """The text is no key. Its words never hold the text: it may be a private one."""


def to_text(data: bytes) -> str:
    """URL-safe, without padding: it stands in attributes, metadata and files."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_text(text: str, size: int | None = None) -> bytes:
    """The bytes, or BadKey. One value has one text: a second spelling is refused."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise BadKey("not base64url") from None
    if to_text(data) != text or (size is not None and len(data) != size):
        raise BadKey(f"not base64url of {size or 'some'} bytes")
    return data
