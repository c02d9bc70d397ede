"""zen config diff, history, rollback: the configuration in force, as the service knows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.operate import config_app, faults_json
from cli.options import Api, AsJson
from cli.output.durations import clock_time
from cli.output.printing import console, emit, fitted, note, say
from cli.paths import PROGRAM
from core.clock import SystemClock

if TYPE_CHECKING:
    from cli.client import Json
    from config.errors import ConfigError

app = config_app


@config_app.command("diff")
def diff(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Default: the file that the service watches."),
    ] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """What a file would change in the configuration in force. Nothing is changed.

    Without FILE: what became of the file that the service watches. Exit code 1 if it is, or
    would be, refused.

    \b
    Examples:
      zen config diff
      zen config diff new.yaml && cp new.yaml /etc/zen/zen.yaml
      zen config diff new.yaml --json
    """
    from cli.client import Client, api_address

    with Client(api_address(api)) as client:
        found = _of_file(client, file) if file is not None else _of_service(client)
    if as_json:
        emit(found)
    else:
        _say_diff(found)
    if found["faults"]:
        raise typer.Exit(1)


def _of_service(client: Any) -> Json:
    told: Json = client.get("/config")
    seen = told["file"]
    return {
        "file": seen["path"],
        "state": seen["state"],
        "in_force": told["in_force"]["version"],
        "diff": seen["diff"],
        "faults": seen["faults"],
    }


def _of_file(client: Any, file: Path) -> Json:
    import os

    from config.errors import ConfigError
    from config.reload import Reader

    try:
        # Read here first: only whoever has the file can name the line of a fault.
        candidate = Reader(os.environ).file(file.read_bytes(), str(file))
    except ConfigError as error:
        number = client.get("/config")["in_force"]["version"]
        return {**_refused(str(file), error), "in_force": number}
    source = str(file) if str(file).isprintable() else "the file"
    told = client.post("/config/check", {"document": candidate.document, "source": source[-200:]})
    state = "refused" if told["faults"] else "would be accepted" if told["diff"] else "in force"
    return {"file": str(file), "state": state, **{k: told[k] for k in _DIFF_KEYS}}


_DIFF_KEYS = ("in_force", "diff", "faults")


def _refused(file: str, error: ConfigError) -> Json:
    faults = faults_json(error)
    return {"file": file, "state": "refused", "diff": [], "faults": faults}


def _say_diff(found: Json) -> None:
    number = found["in_force"]
    match found["state"]:
        case "in force":
            say(f"{found['file']} matches the active version, {number}")
        case "refused":
            say(f"{found['file']} is refused; the active version is {number}")
        case "differs":
            say(f"{found['file']} differs from the active version, {number}; it would change")
        case "would be accepted":
            say(f"{found['file']} would change, against version {number}")
        case other:
            say(f"{found['file']}: {other}; the active version is {number}")
    for line in found["diff"]:
        say(f"  {line}")
    for fault in found["faults"]:
        words = fault.get("message") or f"got {fault['got']}, expected {fault['expected']}"
        say(f"  {fault['field']}: {words}")


@config_app.command("history")
def history(
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Newest first.")] = 20,
    before: Annotated[
        int | None,
        typer.Option("--before", min=1, metavar="VERSION", help="Only older ones: the next page."),
    ] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Every configuration that was in force: when, by whom, what it changed.

    \b
    Examples:
      zen config history
      zen config history --limit 5 --before 12
      zen config history --json
    """
    from cli.client import Client, api_address

    with Client(api_address(api)) as client:
        page = client.get("/config/versions", {"page_size": limit, "before": before})
    if as_json:
        emit(page)
        return
    now = SystemClock().now()
    rows = [
        [
            row["version"],
            clock_time(row["at"], now),
            row["author"],
            row["source"],
            "; ".join(row["diff"]) or ("the first" if row["version"] == 1 else "nothing"),
        ]
        for row in page["versions"]
    ]
    headings = ("VERSION", "SINCE", "BY", "FROM", "CHANGES")
    console().print(fitted(headings, rows, right="VERSION", below="CHANGES"))
    if page["next_before"]:
        note(f"{len(rows)} of {page['total']} shown; older: --before {page['next_before']}")


@config_app.command("rollback")
def rollback(
    version: Annotated[int, typer.Argument(min=1, metavar="VERSION", help="As history shows it.")],
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", metavar="FILE", help="Also write it there; the old one becomes FILE.before."
        ),
    ] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Makes a new version with the content of an older one. Repeating it changes nothing.

    The service never writes the file: until you do (--write, or by hand) the file differs from
    what is in force. It stays without effect until its content changes.

    \b
    Examples:
      zen config rollback 6
      zen config rollback 6 --write /etc/zen/zen.yaml
    """
    from cli.client import Client, api_address
    from cli.commands.groups import whoami

    with Client(api_address(api)) as client:
        done = client.post("/config/rollback", {"version": version, "by": whoami()})
        if write is not None:
            _write_back(write, client.get("/config")["in_force"])
    if as_json:
        emit(done)
        return
    say(done["message"])
    for line in done["diff"]:
        say(f"  {line}")
    if write is not None:
        say(f"written to {write}; what was there is in {write}.before")
    elif done["file"]["state"] == "differs":
        path = done["file"]["path"]
        say(f"the file {path} differs now: it has no effect until its content changes")
        say(f"  to make it say the same: {PROGRAM} config rollback {version} --write {path}")


def _write_back(file: Path, version: Json) -> None:
    """The version's document beside what belongs to the process that reads this very file."""
    import shutil

    import yaml

    from config.document import read_yaml
    from config.errors import ConfigError
    from config.reload import own_keys

    values: dict[str, Any] = dict(version["document"])
    if file.exists():
        document = read_yaml(file)
        if document.faults:  # it may name the database, and that must not be lost
            raise ConfigError(document.faults)
        for word, own in own_keys(document.values).items():
            values[word] = {**values.get(word, {}), **own} if isinstance(own, dict) else own
        shutil.copy2(file, file.with_name(f"{file.name}.before"))
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(f"# Version {version['version']}, by zen config rollback.\n{text}", "utf-8")
    fresh.replace(file)
