"""uvicorn as we run it: over TLS if there are files for it."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from config.settings import ApiSettings, TlsFiles
from core.errors import ZenError
from scheduler.api.http.app import create_app
from scheduler.api.http.server import bind, web_server
from tests.scheduler.api.fakes import House


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    """A certificate of its own making for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "zen")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = TlsFiles(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    Path(made.cert).write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    Path(made.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return made


async def test_served_over_tls(tls: TlsFiles) -> None:
    """Clients that trust the certificate are answered, and told to come by HTTPS from now on;
    plain HTTP is not."""
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    server = web_server(create_app(House().services()), ApiSettings(tls=tls))
    running = asyncio.create_task(server.serve(sockets=[listening]))
    trusted = ssl.create_default_context(cafile=tls.cert)
    async with httpx.AsyncClient(verify=trusted, trust_env=False) as client:
        answer = await client.get(f"https://127.0.0.1:{port}/api/v1/health")
        with pytest.raises(httpx.HTTPError):
            await client.get(f"http://127.0.0.1:{port}/api/v1/health")
    server.should_exit = True
    await running
    assert answer.status_code == 200
    assert "max-age" in answer.headers["strict-transport-security"]


def test_wrong_files_are_named(tls: TlsFiles) -> None:
    """What is missing or no certificate stops the start, with the setting's name."""
    for files in (TlsFiles("/nowhere.pem", tls.key), TlsFiles(tls.key, tls.cert)):
        with pytest.raises(ZenError, match=r"^api\.tls"):
            web_server(create_app(House().services()), ApiSettings(tls=files))


def test_taken_address_is_named() -> None:
    """The address that is taken stands in the error."""
    with bind("127.0.0.1", 0) as taken, pytest.raises(ZenError, match="cannot listen on 127"):
        bind(*taken.getsockname())
