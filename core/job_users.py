"""Which user a job runs as, where jobs have users of their own: drawn with a secret, so that nobody
can choose the name of a job such that it gets the user of another one."""

from __future__ import annotations

import hmac

from core.messages import StartJob

DRAWS = 2**31 - 1
"""As many numbers as counts on the wire have; several times as many as there are users."""


def job_identity(order: StartJob) -> str:
    """The same for all attempts of a job, and for all members of a gang: they share checkpoints."""
    spec = order.spec
    return "\0".join((spec.tenant_id, spec.user_id, order.job_name))


def draw_user(secret: bytes, order: StartJob) -> int:
    """A number above 0; a VM takes it modulo the number of its users."""
    digest = hmac.digest(secret, job_identity(order).encode(errors="surrogatepass"), "sha256")
    return 1 + int.from_bytes(digest, "big") % DRAWS
