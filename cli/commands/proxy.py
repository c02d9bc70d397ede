"""zen proxy: an address without credentials, for clients that can use no others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from cli.client import Client, api_address
from cli.credentials import read_key
from cli.options import Api, command
from core.browser_checks import is_loopback
from core.errors import ZenError

Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="A loopback address; port 0: any.")
]
Key = Annotated[
    Path, typer.Option("--key", metavar="FILE", help="Holds the API key that requests get.")
]
OneTenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="ID", help="Needed if the key has roles for several."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Listen on an address that other machines reach.")
]


@command
def proxy(
    listen: Listen, key: Key, tenant: OneTenant = None, force: Force = False, api: Api = None
) -> None:
    """Passes requests on to the API with a key, for clients with a fixed address.

    Runs in the foreground. Everybody who reaches the address has the key's rights for one tenant:
    any user of this machine, on loopback too.

    \b
    Example:
      zen proxy --listen 127.0.0.1:8081 --key nightly.key
    """
    import asyncio

    from cli.key_proxy import ProxyTarget, serve_proxy, tenant_for

    host, port = _address(listen)
    if not is_loopback(host) and not force:
        raise ZenError(
            f"--listen: {host} is no loopback address: every machine that reaches it would have "
            "the key's rights; --force listens there nevertheless"
        )
    text, address = read_key(key), _plain(api_address(api))
    with Client(address, key=text) as client:
        me = client.get("/whoami")
    target = ProxyTarget(address, text, tenant_for(me, tenant))

    def ready(at: str) -> None:
        print(f"{at} is {address} as {me['name']} ({me['principal']}), tenant {target.tenant_id}")
        who = "any user of this machine" if is_loopback(host) else "everybody who reaches it"
        print(f"warning: {who} may use it, without a key", file=sys.stderr)
        sys.stdout.flush()

    asyncio.run(serve_proxy(target, host, port, ready))


def _plain(address: str) -> str:
    """Without credentials: the key is what counts."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _address(word: str) -> tuple[str, int]:
    host, _, port = word.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise typer.BadParameter(f"--listen: got {word!r}, expected HOST:PORT")
    return host.strip("[]"), int(port)
