"""Errors, each named after the next move of the code that catches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class ZenError(Exception):
    """Base of all errors that we raise on purpose; `code` is stable for scripts."""

    code = "error"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an input: where, what came, what was expected."""

    field: str
    got: str
    expected: str
    words: str = ""
    """A sentence that says it better than "got …, expected …" would."""

    def __str__(self) -> str:
        if self.words:
            return f"{self.field}: {self.words}"
        return f"{self.field}: got {self.got}, expected {self.expected}"


class BadInput(ZenError):
    """The caller must change the input. Carries every fault, not just the first."""

    code = "bad_input"

    def __init__(self, faults: Sequence[Fault]) -> None:
        assert faults, "BadInput needs at least one fault"
        self.faults = tuple(faults)
        super().__init__("; ".join(str(fault) for fault in self.faults))


class IllegalTransition(ZenError):
    """The state machine of a job or a VM has no such step from here."""

    code = "illegal_transition"

    def __init__(self, subject: str, state: str, event: str) -> None:
        super().__init__(f"{subject} is {state}: {event} is not possible from there")


class QuotaExceeded(BadInput):
    """The tenant may never have that much: ask for less, or for a larger quota."""

    code = "quota_exceeded"

    def __init__(self, fault: Fault, words: str) -> None:
        super().__init__([fault])
        self.args = (words,)  # what clients of multi-tenant schedulers look for


class PriceNotConfirmed(ZenError):
    """The submission is dearer than what its tenant buys without asking: confirm the price."""

    code = "price_not_confirmed"

    def __init__(self, words: str, usd_per_hour: float) -> None:
        self.usd_per_hour = usd_per_hour
        super().__init__(words)


class NotFound(ZenError):
    """There is no such thing; look at the list."""

    code = "not_found"


class Conflict(ZenError):
    """The thing exists with other content, or its state does not allow this."""

    code = "conflict"


class Ambiguous(ZenError):
    """The name fits more than one thing; say which."""

    code = "ambiguous"


class TermPassed(ZenError):
    """Another replica leads now: stop writing, start following."""

    code = "term_passed"


class StoreDown(ZenError):
    """The database does not answer: tell the caller to try again, change nothing."""

    code = "database_unavailable"


class IssuerDown(ZenError):
    """An issuer of identity tokens does not answer: nobody can say whose token this is."""

    code = "issuer_unavailable"


class BusDown(ZenError):
    """The bus does not answer: keep the outbox, try again."""

    code = "bus_unavailable"


class CloudUnsure(ZenError):
    """The call may or may not have taken effect: observe again before anything else."""

    code = "cloud_unsure"


class CloudBusy(ZenError):
    """The call did not take effect and may be repeated later (rate limit, 5xx on a read)."""

    code = "cloud_busy"


class CloudRefused(ZenError):
    """The call can never succeed as it is (bad name, duplicate, invalid field)."""

    code = "cloud_refused"


class MigMissing(ZenError):
    """The group does not exist: a configuration fault. Keep the region, tell a human."""

    code = "mig_missing"


class Forbidden(ZenError):
    """We are not allowed: hold, tell a human."""

    code = "forbidden"


class TooManyRequests(ZenError):
    """The caller's rate limit is used up: wait."""

    code = "too_many_requests"

    def __init__(self, words: str, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(words)


class SecretRefused(ZenError):
    """The job cannot have a secret that it names, now or later: it fails with these words."""

    code = "secret_refused"


class SecretsAway(ZenError):
    """Secrets cannot be had at the moment: ask again."""

    code = "secrets_unavailable"
