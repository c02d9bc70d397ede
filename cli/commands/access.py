"""zen keys …, zen grants …, zen audit …, zen whoami: who may call, what for, and what they did."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cli.client import Client, Json, path
from cli.credentials import FILE_VARIABLE, KEY_VARIABLE, BadKeyFile, NoKey, file_of
from cli.options import Limit, command, group
from cli.output.durations import clock_time, seconds
from cli.output.printing import Answer, fitted
from core.clock import SystemClock
from core.errors import ZenError

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The id, as the list shows it.")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Write the key there (0600), do not print it."),
]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="SPAN", help="90d, 12h; without it a new key never expires."),
]
Who = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="key:<id>, user:<e-mail> or group:<name>.")
]
Role = Annotated[
    str, typer.Option("--role", metavar="ROLE", help="viewer, submitter, member, operator, admin.")
]
Tenant = Annotated[
    str, typer.Option("--tenant", metavar="ID", help="For which tenant; '*' for every one.")
]
AUDIT_PAGE = 1000
GRANT_FIELDS = ("principal", "tenant_id", "role", "source")


class BadExport(ZenError):
    """The file cannot be written; nothing was."""

    code = "bad_export"


@dataclass(frozen=True, slots=True)
class NewKey:
    """What a new key may do."""

    role: Role = "member"
    tenant: Tenant = "default"
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="ID", help="Whose jobs it submits. Default: the name."),
    ] = None
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="WORD", help="on-behalf-of or read-only; repeatable."),
    ] = None


@command
def list_keys(client: Client, limit: Limit = 100) -> Answer:
    """The keys with their roles, expiry and last use; never the keys themselves.

    \b
    Examples:
      zen keys list
      zen keys list --json
    """
    query = {"page_size": limit}
    page = client.get("/keys", query)
    client.read_on(page, "/keys", query, "keys", limit)
    now = SystemClock().now()
    rows = [
        [
            key["key_id"],
            key["name"],
            key["user_id"],
            _roles(key),
            _state(key, now.isoformat()),
            clock_time(key["expires_at"], now) if key.get("expires_at") else "never",
            clock_time(key["last_used_at"], now) if key.get("last_used_at") else "never",
        ]
        for key in page["keys"]
    ]
    headings = ("KEY", "NAME", "USER", "ROLES", "STATE", "EXPIRES", "LAST USED")
    table = fitted(headings, rows, below="ROLES")
    more = ["more with --limit"] if page.get("next_page_token") else []
    return Answer(page, [table], more)


keys_app = group("API keys: list (also alone), create, print, rotate, revoke.", list_keys)


@keys_app.command("create")
@command
def create_key(
    client: Client,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    new: NewKey,
    expires: Expires = None,
    file: KeyFile = None,
) -> Answer:
    """A new key with one role. The key is shown once: keep it.

    \b
    Examples:
      zen keys create nightly --tenant default --role submitter
      zen keys create grafana --role viewer --scope read-only --expires 90d
    """
    body: Json = {"name": name, "tenant_id": new.tenant, "role": new.role}
    body["scopes"] = new.scope or []
    if new.user is not None:
        body["user_id"] = new.user
    words = {**body, **_expiry(expires)}
    return _new_key(lambda: client.post("/keys", words), file)


@keys_app.command("print")
@command
def print_key(client: Client) -> Answer:
    """The key that commands send to the API, for other clients: keep it out of logs.

    \b
    Example:
      curl -s -H "Authorization: Bearer $(zen keys print)" http://127.0.0.1:8080/api/v1/whoami
    """
    key = client.key
    if key is None:
        raise NoKey(f"no key for {client.address}: set {KEY_VARIABLE} or {FILE_VARIABLE}")
    return Answer({"key": key}, [key])


@keys_app.command("rotate")
@command
def rotate_key(client: Client, key: KeyId, expires: Expires = None, file: KeyFile = None) -> Answer:
    """A new secret for a key; the old one opens nothing any more. Name, roles and, without
    --expires, the expiry stay. A file that is there is replaced; so is the one whose key the
    command was sent with.

    \b
    Example:
      zen keys rotate KEY --expires 90d --file nightly.key
    """
    if file is None and client.key is not None and f"_{key}_" in client.key:
        file = file_of(client.address)
    words = _expiry(expires)
    return _new_key(lambda: client.post(path("keys", key, "rotate"), words), file, replace=True)


@keys_app.command("revoke")
@command
def revoke_key(client: Client, key: KeyId) -> Answer:
    """The key opens nothing any more, on every replica within 5 seconds. For good.

    \b
    Example:
      zen keys revoke KEY
    """
    found = client.delete(path("keys", key))
    return Answer(found, [f"key {found['key_id']} ({found['name']}) is revoked"])


@command
def list_grants(
    client: Client,
    principal: Annotated[
        str | None,
        typer.Option("--principal", metavar="NAME", help="Of this one alone."),
    ] = None,
) -> Answer:
    """Who has which role for which tenant. Grants of the configuration (section access) are changed
    there.

    \b
    Examples:
      zen grants list
      zen grants list --principal user:ada@example.com
    """
    found = client.get("/grants", {"principal": principal})
    headings = ("PRINCIPAL", "TENANT", "ROLE", "SOURCE")
    rows = [[grant[name] for name in GRANT_FIELDS] for grant in found["grants"]]
    return Answer(found, [fitted(headings, rows)])


grants_app = group("Roles of keys and people: list (also alone), add, remove.", list_grants)


@grants_app.command("add")
@command
def add_grant(client: Client, principal: Who, role: Role, tenant: Tenant) -> Answer:
    """Gives a role; safe to repeat.

    \b
    Example:
      zen grants add user:ada@example.com --tenant default --role member
    """
    body = {"principal": principal, "tenant_id": tenant, "role": role}
    return Answer(client.post("/grants", body), [f"{principal} is {role} of {_whose(tenant)}"])


@grants_app.command("remove")
@command
def remove_grant(client: Client, principal: Who, role: Role, tenant: Tenant) -> Answer:
    """Takes a role away.

    \b
    Example:
      zen grants remove user:ada@example.com --tenant default --role member
    """
    query = {"principal": principal, "tenant_id": tenant, "role": role}
    found = client.json(client.call("DELETE", "/grants", query=query))
    return Answer(found, [f"{principal} is not {role} of {_whose(tenant)} any more"])


@command
def whoami(client: Client) -> Answer:
    """Who the API takes you for, and what you may do.

    \b
    Examples:
      zen whoami
      zen whoami --json
    """
    me = client.get("/whoami")
    rows = [[r["right"], ", ".join(r["tenants"]), r["meaning"]] for r in me["rights"]]
    scopes = f", {', '.join(me['scopes'])}" if me["scopes"] else ""
    who = f"{me['name']} ({me['principal']}), user {me['user_id']}{scopes}"
    return Answer(me, [who, fitted(("RIGHT", "TENANTS", "MEANING"), rows, below="MEANING")])


Principal = Annotated[
    str | None, typer.Option("--principal", metavar="NAME", help="Only what this one did.")
]


@command
def list_audit(
    client: Client,
    principal: Principal = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="WORD", help="Only this, e.g. job.stop.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="Only of this, e.g. job/default/0/mnist."),
    ] = None,
    limit: Limit = 50,
) -> Answer:
    """Who changed what, newest first.

    \b
    Examples:
      zen audit list
      zen audit list --action job.stop --json
    """
    query = {"principal": principal, "action": action, "target": target, "page_size": limit}
    page = client.get("/audit", query)
    now = SystemClock().now()
    rows = [
        [
            row["seq"],
            clock_time(row["at"], now),
            row["principal"],
            row["address"],
            row["tenant_id"],
            row["action"],
            row["target"],
            " ".join(f"{name}={value}" for name, value in row["detail"].items() if value),
        ]
        for row in page["rows"]
    ]
    headings = ("SEQ", "AT", "PRINCIPAL", "FROM", "TENANT", "ACTION", "TARGET", "DETAIL")
    more = ["older ones with --limit"] if page["next_before"] else []
    return Answer(page, [fitted(headings, rows, right="SEQ", below="DETAIL")], more)


audit_app = group("The audit log: list (also alone), verify, export.", list_audit)


@audit_app.command("verify")
@command
def verify_audit(
    client: Client,
    anchors: Annotated[
        bool, typer.Option("--anchors", help="Also with the heads at audit.anchor_url.")
    ] = False,
) -> Answer:
    """Checks the whole chain; names each row that was changed, dropped or swapped.

    Exit code 1 if anything is wrong. A chain that was cut at its end, or written anew as a whole,
    shows by a head that was kept elsewhere alone: --anchors compares with those.

    \b
    Examples:
      zen audit verify
      zen audit verify --anchors
      zen audit verify --json
    """
    found = client.get("/audit/verify", {"anchors": "true" if anchors else None})
    lines = [fault["message"] for fault in found["faults"]]
    good = f"{found['rows']} rows, no fault; head {found['head'] or '(none yet)'}"
    if anchors:
        good += f"; {found['anchors']} anchors compared"
    notes = [found["unlinked"]] if found["unlinked"] else []
    return Answer(found, lines or [good], notes, 0 if found["good"] else 1)


@audit_app.command("export")
@command
def export_audit(
    client: Client,
    principal: Principal = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write it there (0600); a new file."),
    ] = None,
) -> Answer:
    """The whole log as JSON lines, newest first, for archives and other tools.

    \b
    Examples:
      zen audit export
      zen audit export --file audit.jsonl
      zen audit export --json
    """
    rows = _audit_rows(client, principal)
    if file is not None:
        count = _written(file, rows)
        return Answer({"file": str(file), "rows": count}, [f"{count} rows are in {file}"])
    found = list(rows)
    return Answer({"rows": found}, map(_line, found))


def _written(file: Path, rows: Iterator[Json]) -> int:
    count = 0
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise BadExport(f"{file}: {error.strerror}") from error
    with os.fdopen(opened, "w", encoding="utf-8") as out:
        for count, row in enumerate(rows, 1):  # noqa: B007  # how many there were
            out.write(f"{_line(row)}\n")
    return count


def _line(row: Json) -> str:
    return json.dumps(row, ensure_ascii=False)


def _audit_rows(client: Client, principal: str | None) -> Iterator[Json]:
    before = None
    while True:
        query = {"principal": principal, "page_size": AUDIT_PAGE, "before": before}
        page = client.get("/audit", query)
        yield from page["rows"]
        before = page["next_before"]
        if before is None:
            return


def _expiry(span: str | None) -> Json:
    return {} if span is None else {"expires_in_s": seconds(span, "--expires")}


def _new_key(make: Callable[[], Json], file: Path | None, *, replace: bool = False) -> Answer:
    """The file is opened first: a key whose secret cannot be written is made for nobody."""
    if file is None:
        made = make()
        head = f"key {made['key_id']} ({made['name']})"
        keep = "this is shown once: keep it, and use it with ZEN_API_KEY or as a bearer token"
        return Answer(made, [head, str(made["key"])], [keep])
    if not replace and file.exists():
        # Never over another key: that one may be the only copy.
        raise BadKeyFile(f"{file} is there already: name another file")
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
        try:
            made = make()
            out.write(str(made["key"]) + "\n")
        except BaseException:
            fresh.unlink()
            raise
    fresh.replace(file)
    head = f"key {made['key_id']} ({made['name']})"
    told = {**{name: value for name, value in made.items() if name != "key"}, "file": str(file)}
    words: Sequence[str] = [head, f"written to {file}: use it with ZEN_API_KEY_FILE={file}"]
    return Answer(told, words)


def _roles(key: Json) -> str:
    roles = ", ".join(f"{r['role']} of {r['tenant_id']}" for r in key["roles"]) or "none"
    return f"{roles} ({', '.join(key['scopes'])})" if key["scopes"] else roles


def _state(key: Json, now: str) -> str:
    if key.get("revoked_at"):
        return "revoked"
    return "expired" if key.get("expires_at") and str(key["expires_at"]) <= now else "active"


def _whose(tenant: str) -> str:
    return "every tenant" if tenant == "*" else f"tenant {tenant}"
