"""What a failed attempt to create a VM means. Pure: the planners' side of Google's words."""

from __future__ import annotations

from core.capacity import AttemptError, TroubleKind

_STOCKOUT = ("RESOURCE_POOL_EXHAUSTED", "STOCKOUT", "RESOURCE_AVAILABILITY")
_STOCKOUT_WORDS = ("does not have enough resources available", "currently unavailable in the")
_FORBIDDEN = ("PERMISSION", "FORBIDDEN", "ACCESS_DENIED", "POLICY_CONSTRAINT")
_UNSUPPORTED = ("UNSUPPORTED", "INVALID_FIELD", "NOT_SUPPORTED")
_UNSUPPORTED_WORDS = ("machine type", "accelerator type")


def classify(error: AttemptError) -> TroubleKind:
    """The kind of trouble, by the error's code and Google's reason; new codes of a known family
    are recognised by their words. OTHER is not a verdict: it is what nobody has classified yet."""
    code = f"{error.code} {error.reason}".upper()
    # Quota first: a code may speak of both, and waiting for a quota is the longer wait.
    if "QUOTA" in code:
        return TroubleKind.QUOTA
    if any(word in code for word in _STOCKOUT):
        return TroubleKind.STOCKOUT
    if "IP_SPACE_EXHAUSTED" in code:
        return TroubleKind.ADDRESS_SPACE
    if any(word in code for word in _FORBIDDEN):
        return TroubleKind.PERMISSION
    if any(word in code for word in _UNSUPPORTED) or _type_is_missing(code, error.message):
        return TroubleKind.UNSUPPORTED
    if any(words in error.message for words in _STOCKOUT_WORDS):
        return TroubleKind.STOCKOUT
    return TroubleKind.OTHER


def _type_is_missing(code: str, message: str) -> bool:
    """Google says RESOURCE_NOT_FOUND for many things; only a missing kind of machine is ours."""
    words = message.lower().replace("machinetypes/", "machine type ")
    words = words.replace("acceleratortypes/", "accelerator type ")
    return "NOT_FOUND" in code and any(word in words for word in _UNSUPPORTED_WORDS)
