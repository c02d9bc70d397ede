"""zen login, zen logout: as a person of an issuer, instead of with a key."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import SIGN_IN_PAGE, Client, Refused, api_address
from cli.connection import open_http
from cli.options import Api, command
from cli.output.printing import Answer
from core.clock import SystemClock
from core.errors import ZenError

IssuerUrl = Annotated[
    str | None,
    typer.Option("--issuer", metavar="URL", help="Default: the one that the API offers."),
]
ClientId = Annotated[
    str | None,
    typer.Option("--client-id", metavar="ID", help="Default: as the API says."),
]
SecretFile = Annotated[
    Path | None,
    typer.Option("--client-secret-file", metavar="FILE", help="Of clients that have a secret."),
]
Device = Annotated[
    bool,
    typer.Option("--device", help="Sign in on another device: this one has no browser."),
]


@command
def login(
    issuer: IssuerUrl = None,
    client_id: ClientId = None,
    client_secret_file: SecretFile = None,
    device: Device = False,
    api: Api = None,
) -> Answer:
    """Signs you in at the API's issuer; commands then call as you, until zen logout.

    \b
    Examples:
      zen login
      zen login --device
    """
    import time

    from cli.oidc_flows import IssuerClient, LoginClient
    from cli.sign_in_file import SignIn, sign_in_file
    from core.ids import RandomIds

    address = api_address(api)
    offered = {} if issuer and client_id else _offered(address, issuer)
    secret = client_secret_file.read_text("utf-8").strip() if client_secret_file else None
    client = LoginClient(
        issuer or str(offered["issuer"]), client_id or str(offered["client_id"]), secret
    )
    with open_http(client.issuer) as http:
        asked = IssuerClient(client, http, SystemClock())
        if device:
            issued = asked.by_device(_tell_code, time.sleep)
        else:
            issued = asked.by_browser(RandomIds(), _show)
    file = sign_in_file()
    file.put(address, SignIn.of(client, issued))
    # Whether the API agrees; a person without a role is signed in, and told so by commands.
    with Client(address, key=issued.id_token) as api_client:
        me = _asked(api_client)
    told = {"email": issued.email, "issuer": client.issuer, "api": address}
    return Answer({**told, **me}, [f"signed in at {address} as {issued.email}"], _notes(me))


@command
def logout(api: Api = None) -> Answer:
    """Forgets who you are at the API, and tells the issuer so.

    \b
    Example:
      zen logout
    """
    from cli.oidc_flows import IssuerClient, SignInFailed
    from cli.sign_in_file import sign_in_file

    address = api_address(api)
    found = sign_in_file().forget(address)
    if found is None:
        return Answer({"signed_out": False}, [f"nobody is signed in at {address}"])
    if found.refresh_token is not None:
        # What matters is gone already: an issuer that is away changes nothing.
        with suppress(SignInFailed), open_http(found.issuer) as http:
            IssuerClient(found.client, http, SystemClock()).revoke(found.refresh_token)
    return Answer({"signed_out": True}, [f"{found.email} is signed out of {address}"])


def _offered(address: str, issuer: str | None) -> dict[str, Any]:
    """What the API's sign-in page says for programs."""
    with Client(address, server=SIGN_IN_PAGE) as client:
        try:
            offered = client.get("/sign-in")["issuers"]
        except (Refused, KeyError, TypeError) as error:
            raise ZenError(f"{address} does not say how to sign in: {error}") from error
    usable = [one for one in offered if one.get("client_id") and issuer in (None, one["issuer"])]
    if len(usable) == 1:
        return dict(usable[0])
    if usable:
        names = ", ".join(str(one["issuer"]) for one in usable)
        raise ZenError(f"--issuer: {address} knows several, choose one: {names}")
    raise ZenError(
        f"{address} offers no issuer to commands: name one with --issuer and --client-id, or ask "
        "an operator to set access.issuers.*.cli_client_id"
    )


def _asked(client: Client) -> dict[str, Any]:
    try:
        return client.get("/whoami")
    except Refused as error:
        if error.status == 403:
            return {"rights": []}
        raise


def _notes(me: dict[str, Any]) -> list[str]:
    return [] if me["rights"] else ["you have no role here yet: ask an admin for one (zen grants)"]


def _tell_code(address: str, code: str) -> None:
    sys.stderr.write(f"open {address}\nand enter the code {code}\n")
    sys.stderr.flush()


def _show(address: str) -> None:
    import webbrowser

    sys.stderr.write(f"if no browser opens, open {address}\n(or use zen login --device)\n")
    sys.stderr.flush()
    with suppress(webbrowser.Error):
        webbrowser.open(address)
