"""zen secrets …: values that jobs get and nobody else sees."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.client import Client, path
from cli.commands.known_names import refuse_unknown
from cli.options import command, group
from cli.output.durations import clock_time
from cli.output.printing import Answer, fitted
from core.clock import SystemClock
from core.errors import ZenError
from core.ids import RandomIds
from core.secret_references import VALUE_BYTES_MAX

Name = Annotated[str, typer.Argument(metavar="NAME", help="The secret; jobs say zen://NAME.")]
Tenant = Annotated[
    str | None, typer.Option("--tenant", metavar="ID", help="Whose. Default: your tenant.")
]


class BadValue(ZenError):
    """The value cannot be read; nothing was stored."""

    code = "bad_value"


@command
def list_secrets(client: Client, tenant: Tenant = None) -> Answer:
    """The secrets of a tenant by name; their values are never shown.

    \b
    Examples:
      zen secrets list
      zen secrets list --tenant default --json
    """
    found, now = client.get("/secrets", {"tenant_id": tenant}), SystemClock().now()
    rows = [
        [s["reference"], str(s["version"]), clock_time(s["updated_at"], now), s["updated_by"]]
        for s in found["secrets"]
    ]
    if not rows:
        refuse_unknown(client, tenant=tenant)
        return Answer(found, ["no secrets; store one: zen secrets set NAME"])
    return Answer(found, [fitted(("REFERENCE", "VERSION", "SET", "BY"), rows)])


app = group("Secrets that jobs use: list (also alone), set, delete, rekey, key.", list_secrets)


@app.command("set")
@command
def set_secret(
    client: Client,
    name: Name,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Its content is the value; - is stdin."),
    ] = None,
    tenant: Tenant = None,
) -> Answer:
    """Stores a secret, encrypted. The value comes from a prompt, from stdin or from a file, never
    from the command line, where other users of the machine could read it. One newline at its end
    is dropped.

    \b
    Examples:
      echo hush | zen secrets set HF_TOKEN
      zen secrets set HF_TOKEN --file token.txt
    """
    body = {"value": _value(file)}
    found = client.put(path("secrets", name), body, {"tenant_id": tenant})
    words = f"{found['reference']} is stored, version {found['version']}"
    use = f"  use it: zen submit --secret {_variable(name)}={found['reference']} -- …"
    return Answer(found, [words, use])


@app.command("delete")
@command
def delete_secret(client: Client, name: Name, tenant: Tenant = None) -> Answer:
    """Deletes a secret. Jobs that run keep what they were given.

    \b
    Example:
      zen secrets delete HF_TOKEN
    """
    found = client.delete(path("secrets", name), {"tenant_id": tenant})
    return Answer(found, [f"secret {found['name']} of {found['tenant_id']} is gone"])


@app.command("rekey")
@command
def rekey(client: Client) -> Answer:
    """Seals all stored secrets with the first key of the key file.

    \b
    Example:
      zen secrets rekey
    """
    found = client.post("/secrets/rekey", {})
    return Answer(found, [f"{found['sealed']} secrets were sealed with another key until now"])


@app.command("key")
@command
def new_key(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What secrets.key_file names (0600).")
    ],
) -> Answer:
    """Makes a key file for stored secrets, or puts a new key first into one that there is: give the
    file to every replica, restart them, then `zen secrets rekey`.

    \b
    Example:
      zen secrets key secrets.key
    """
    from scheduler.secrets.key_file import add_key, make_key

    keys = 1
    if file.exists():
        keys = add_key(file, RandomIds())
    else:
        make_key(file, RandomIds())
    return Answer({"file": str(file), "keys": keys}, [f"{file} has {keys} keys, the newest first"])


def _value(file: Path | None) -> str:
    if file is None and sys.stdin.isatty():
        return str(typer.prompt("value", hide_input=True, err=True))
    try:
        if file is None or str(file) == "-":
            data = sys.stdin.buffer.read(VALUE_BYTES_MAX + 2)
        else:
            with file.open("rb") as opened:
                data = opened.read(VALUE_BYTES_MAX + 2)
        text = data.decode()
    except UnicodeDecodeError:
        raise BadValue("the value is not UTF-8 text: encode it, for example with base64") from None
    value = text.removesuffix("\n").removesuffix("\r")
    if not value or len(value.encode()) > VALUE_BYTES_MAX:
        raise BadValue(f"got {len(data)} bytes, expected 1 to {VALUE_BYTES_MAX}")
    return value


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()
