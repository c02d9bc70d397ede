"""Google's issuer of instance identity tokens: a JSON Web Token, signed by the cloud, that says
which VM has asked its metadata server for it, and for what audience."""

import asyncio
import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.x509.oid import NameOID

from sim.cloud.model import VmInfo

ISSUER: Final = "https://accounts.google.com"
VALID_S: Final = 3600
CERTIFICATES: Final = "/oauth2/v1/certs"
"""{key id: X.509 certificate}, as www.googleapis.com has it."""
KEY_SET: Final = "/oauth2/v3/certs"
"""The same keys as a JSON Web Key Set."""
CACHE_S: Final = 300
_CERTIFICATE_DAYS: Final = 14
_KEY_BITS: Final = 2048


class IdentityIssuer:
    """Signs under a key of its own, made when the cloud starts. The key is made in a thread; who
    needs it before waits for it."""

    def __init__(self, project: str, project_number: int, clock: Callable[[], float]) -> None:
        self._project, self._number, self._clock = project, project_number, clock
        self._making: asyncio.Task[RSAPrivateKey] | None = None

    def start(self) -> None:
        """Begin to make the key, if nobody has."""
        if self._making is None:
            self._making = asyncio.create_task(asyncio.to_thread(_new_key), name="identity key")

    async def _key(self) -> RSAPrivateKey:
        self.start()
        assert self._making is not None
        return await asyncio.shield(self._making)

    async def token(self, vm: VmInfo, audience: str, *, full: bool) -> str:
        """A fresh one; `full` says which machine it is, else only whose account it has."""
        key = await self._key()
        now = int(self._clock())
        subject = str(int(hashlib.sha256(self._project.encode()).hexdigest()[:17], 16))
        claims: dict[str, object] = {
            "iss": ISSUER,
            "aud": audience,
            "sub": subject,
            "azp": subject,
            "iat": now,
            "exp": now + VALID_S,
        }
        if full:
            claims |= {
                "email": service_account(self._number),
                "email_verified": True,
                "google": {"compute_engine": self._machine(vm)},
            }
        return signed(key, claims)

    def _machine(self, vm: VmInfo) -> Mapping[str, object]:
        return {
            "project_id": self._project,
            "project_number": self._number,
            "zone": vm.zone,
            "instance_id": str(vm.id),
            "instance_name": vm.name,
            "instance_creation_timestamp": int(vm.created_at),
        }

    # --- what is public -------------------------------------------------------------------------

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get(CERTIFICATES, self._certificates)
        app.router.add_get(KEY_SET, self._key_set)

    async def _certificates(self, _: web.Request) -> web.Response:
        key = await self._key()
        return _public({key_id(key): _certificate(key, self._clock())})

    async def _key_set(self, _: web.Request) -> web.Response:
        key = await self._key()
        numbers = key.public_key().public_numbers()
        public = {
            "kty": "RSA",
            "alg": "RS256",
            "use": "sig",
            "kid": key_id(key),
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        return _public({"keys": [public]})


def service_account(project_number: int) -> str:
    """The one that VMs have unless their template names another."""
    return f"{project_number}-compute@developer.gserviceaccount.com"


def key_id(key: RSAPrivateKey) -> str:
    """Says which of the public keys a token is checked with."""
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(public).hexdigest()[:40]


def signed(key: RSAPrivateKey, claims: Mapping[str, object]) -> str:
    """A JSON Web Token, RS256."""
    header = {"alg": "RS256", "kid": key_id(key), "typ": "JWT"}
    words = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
    return f"{words}.{_base64(key.sign(words.encode(), PKCS1v15(), hashes.SHA256()))}"


def _new_key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=_KEY_BITS)


def _certificate(key: RSAPrivateKey, now: float) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "federated-signon.pretend-cloud")])
    begins = datetime.fromtimestamp(now, UTC) - timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=_CERTIFICATE_DAYS))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def _number(value: int) -> str:
    size = math.ceil(value.bit_length() / 8)
    return _base64(value.to_bytes(size, "big"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _public(body: Mapping[str, object]) -> web.Response:
    caching = f"public, max-age={CACHE_S}, must-revalidate, no-transform"
    return web.json_response(body, headers={"Cache-Control": caching})
