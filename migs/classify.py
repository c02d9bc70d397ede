"""What Google's errors mean for a VM that could not be created. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from core.mig import Refusal
from core.region_blocks import BlockKind

_STOCKOUT = ("RESOURCE_POOL_EXHAUSTED", "STOCKOUT", "RESOURCE_AVAILABILITY")
_STOCKOUT_WORDS = ("does not have enough resources available", "currently unavailable in the")
_FORBIDDEN = ("PERMISSION", "FORBIDDEN", "ACCESS_DENIED", "POLICY_CONSTRAINT")
_FORBIDDEN_WORDS = ("does not have access to service account", "permission for 'projects/")
# Of a spot VM that is reclaimed while it is made; its code is often UNSUPPORTED_OPERATION.
_RECLAIMED_WORDS = ("due to preemption", "was preempted")
_GLOBAL = ("GPUS_ALL_REGIONS", "GPUS-ALL-REGIONS")
_UNSUPPORTED = ("UNSUPPORTED", "INVALID_FIELD", "NOT_SUPPORTED")
_UNSUPPORTED_WORDS = ("machine type", "accelerator type")


@dataclass(frozen=True, slots=True)
class ComputeError:
    """One of Google's reasons why an instance could not be created."""

    code: str
    message: str
    reason: str = ""
    zones_available: tuple[str, ...] = ()
    """Zones that Google names as having room."""
    zone: str = ""
    """Where it was tried; empty if Google does not say."""
    quota: str = ""
    """The quota that is spent: metric and limit by Google's names."""


def refusal(error: ComputeError) -> Refusal:
    """The error in our words. Of what nobody has classified the code is kept, to look it up."""
    kind = classify(error)
    message = error.message or error.code or "the cloud gives no reason"
    if kind is BlockKind.OTHER and error.code and error.message:
        message = f"{error.code}: {error.message}"
    return Refusal(kind, message, error.zone, error.zones_available, is_global(error))


def classify(error: ComputeError) -> BlockKind:
    """The kind of region block, by the error's code and Google's reason; new codes of a known
    family are recognised by their words. OTHER is what nobody has classified yet: people are told
    of it in Google's own words."""
    code = f"{error.code} {error.reason}".upper()
    # Quota first: a code may speak of both, and waiting for a quota is the longer wait.
    if "QUOTA" in code:
        return BlockKind.QUOTA
    if any(word in code for word in _STOCKOUT):
        return BlockKind.STOCKOUT
    if "IP_SPACE_EXHAUSTED" in code:
        return BlockKind.ADDRESS_SPACE
    if _is_reclaim(code, error.message):
        return BlockKind.STOCKOUT
    if any(word in code for word in _FORBIDDEN) or _says(error.message, _FORBIDDEN_WORDS):
        return BlockKind.PERMISSION
    if any(word in code for word in _UNSUPPORTED) or _type_is_missing(code, error.message):
        return BlockKind.UNSUPPORTED
    if _says(error.message, _STOCKOUT_WORDS):
        return BlockKind.STOCKOUT
    return BlockKind.OTHER


def is_global(error: ComputeError) -> bool:
    """Whether it is a quota over all regions: no other region will do better."""
    said = f"{error.quota} {error.message}".upper()
    in_all = any(metric in said for metric in _GLOBAL) or " GLOBALLY" in said
    return in_all and classify(error) is BlockKind.QUOTA


def _is_reclaim(code: str, message: str) -> bool:
    """The place had the VM and took it back: it is short, not unfit."""
    return "PREEMPTED" in code or _says(message, _RECLAIMED_WORDS)


def _says(message: str, words: tuple[str, ...]) -> bool:
    return any(word in message for word in words)


def _type_is_missing(code: str, message: str) -> bool:
    """Google says RESOURCE_NOT_FOUND for many things; only a missing kind of machine is ours."""
    words = message.lower().replace("machinetypes/", "machine type ")
    words = words.replace("acceleratortypes/", "accelerator type ")
    return "NOT_FOUND" in code and any(word in words for word in _UNSUPPORTED_WORDS)
