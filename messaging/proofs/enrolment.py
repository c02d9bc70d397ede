"""Identity tokens for machines that no cloud vouches for: made with a secret that the operator of
the deployment gave to the machine.

The secret of a deployment follows from the scheduler's private key. A worker is given
the secret of its own instance alone, from which no other can be found.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta

from core.ports import Clock
from core.worker_identity import IdentityRefused, VmIdentity
from messaging.proofs.keys import SchedulerKey
from messaging.proofs.sealing import derive
from messaging.proofs.texts import BadKey, from_text, to_text

VALID = timedelta(hours=1)
"""As long as a cloud's token: before and after its moment, since clocks differ."""
TOKEN_CHARS_MAX = 4096
_PREFIX = "zen1"
_SECRET = b"zen enrolment secret 1"
_INSTANCE = b"zen enrolment instance 1\0"


def enrolment_secret(key: SchedulerKey) -> bytes:
    """The deployment's secret for machines of its own."""
    return derive(key.sealing.private_bytes_raw(), _SECRET)


def instance_secret(secret: bytes, instance_name: str, instance_id: str) -> bytes:
    """What one worker is given."""
    return hmac.digest(secret, _INSTANCE + f"{instance_name}\0{instance_id}".encode(), "sha256")


def make_token(secret: bytes, identity: VmIdentity, audience: str) -> str:
    """`secret`: of that instance. The audience is what the keys of the boot hash to."""
    said = json.dumps({**asdict(identity), "audience": audience}, sort_keys=True).encode()
    return f"{_PREFIX}.{to_text(said)}.{to_text(hmac.digest(secret, said, 'sha256'))}"


@dataclass(frozen=True, slots=True)
class EnrolmentTokens:
    """Checks them; an adapter of core.worker_identity.IdentityTokens."""

    secrets: Sequence[bytes] = field(repr=False)
    """Of every scheduler key that is held."""
    clock: Clock

    async def verify(self, token: str, audience: str) -> VmIdentity | IdentityRefused:
        kind, _, rest = token.partition(".")
        if kind != _PREFIX or len(token) > TOKEN_CHARS_MAX:
            return IdentityRefused("not a token of a machine of its own")
        text, _, mac = rest.partition(".")
        try:
            said, given = from_text(text), from_text(mac, 32)
            words = json.loads(said)
            claimed = words.pop("audience")
            identity = VmIdentity(**words)
            texts = asdict(replace(identity, issued_at=0)) | {"issued_at": ""}
        except (BadKey, ValueError, TypeError, KeyError, AttributeError):
            return IdentityRefused("malformed")
        if not all(isinstance(value, str) for value in texts.values()):
            return IdentityRefused("malformed")
        if type(identity.issued_at) is not int:
            return IdentityRefused("malformed")
        of_instance = (
            instance_secret(secret, identity.instance_name, identity.instance_id)
            for secret in self.secrets
        )
        if not any(
            hmac.compare_digest(hmac.digest(secret, said, "sha256"), given)
            for secret in of_instance
        ):
            return IdentityRefused("not made with the secret of that instance")
        if claimed != audience:
            return IdentityRefused("issued for other keys")
        if abs(self.clock.now().timestamp() - identity.issued_at) > VALID.total_seconds():
            return IdentityRefused("expired, or from the future")
        return identity
