"""What became of a call that Google accepted: its operation, which may end with an error.

A call that is repeated with its request id answers with the same operation. So an operation that is
not over in time need not be remembered by anybody: the request is not settled, is repeated later,
perhaps by another leader, and its operation is looked at then.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import structlog

from core.errors import CloudBusy, CloudUnsure, Forbidden, MigMissing
from core.mig import OperationFailed, Refusal
from migs.calling import About, Caller, call_of
from migs.classify import ComputeError, refusal
from migs.responses import read_errors

log = structlog.get_logger("migs")
PAUSES_S = (0.3, 0.6, 1.2, 2.4, 4.8)
"""Between two looks at an operation; most are over at the first."""


class Operations:
    """Reads operations of one project, each look within the budget of calls."""

    def __init__(self, project: str, caller: Caller) -> None:
        self._project, self._caller = project, caller

    async def finish(self, operation: Any, about: About) -> None:
        """Returns when it has succeeded, or can no longer be read: then observation tells.
        OperationFailed if it has not; CloudUnsure if it is not over in time."""
        look = replace(about, write=False)
        for pause_s in PAUSES_S:
            if _is_done(operation):
                break
            await asyncio.sleep(pause_s)
            names = {"project": self._project, "region": look.region, "operation": operation.name}
            try:
                operation = await self._caller.repeated(call_of("operations", "get", names), look)
            except CloudBusy:
                continue
            except (MigMissing, Forbidden) as error:
                # Forgotten by Google, or not ours to read (compute.regionOperations.get).
                log.warning("operation not read", mig=about.mig, why=str(error))
                return
        if not _is_done(operation):
            raise CloudUnsure(f"{about.mig}: {operation.name} is not over yet")
        if errors := _errors_of(operation):
            words = "; ".join(error.message for error in errors)
            raise OperationFailed(f"{about.mig}: accepted, then failed: {words}"[:1000], errors)


def _is_done(operation: Any) -> bool:
    return getattr(operation.status, "name", "") == "DONE"


def _errors_of(operation: Any) -> tuple[Refusal, ...]:
    """Empty: it succeeded."""
    raw = type(operation).pb(operation)
    found = read_errors(raw.error.errors)
    if not found and raw.http_error_status_code >= 400:
        code = f"HTTP_{raw.http_error_status_code}"
        return (refusal(ComputeError(code, raw.http_error_message)),)
    return found
