"""zen config diff, history, rollback: the configuration in force, as the service knows it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import Client, Json
from cli.commands.groups import whoami
from cli.commands.operate import config_app, faults_json
from cli.options import Limit, command
from cli.output.durations import clock_time
from cli.output.printing import Answer, fitted
from cli.paths import PROGRAM
from core.clock import SystemClock

app = config_app


@config_app.command("diff")
@command
def diff(
    client: Client,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Default: the file that the service watches."),
    ] = None,
) -> Answer:
    """What a file would change in the configuration in force. Nothing is changed.

    Without FILE: what became of the file that the service watches. Exit code 1 if it is, or
    would be, refused.

    \b
    Examples:
      zen config diff
      zen config diff new.yaml && cp new.yaml /etc/zen/zen.yaml
      zen config diff new.yaml --json
    """
    found = _of_file(client, file) if file is not None else _of_service(client)
    return Answer(found, _diff_lines(found), code=1 if found["faults"] else 0)


def _of_service(client: Client) -> Json:
    told = client.get("/config")
    seen = told["file"]
    return {
        "file": seen["path"],
        "state": seen["state"],
        "in_force": told["in_force"]["version"],
        "diff": seen["diff"],
        "faults": seen["faults"],
    }


def _of_file(client: Client, file: Path) -> Json:
    from config.errors import ConfigError
    from config.reload import Reader

    try:
        # Read here first: only here, beside the file, can a fault name its line.
        candidate = Reader(os.environ).file(file.read_bytes(), str(file))
    except ConfigError as error:
        number = client.get("/config")["in_force"]["version"]
        refused = {"state": "refused", "diff": [], "faults": faults_json(error)}
        return {"file": str(file), **refused, "in_force": number}
    source = str(file) if str(file).isprintable() else "the file"
    told = client.post("/config/check", {"document": candidate.document, "source": source[-200:]})
    state = "refused" if told["faults"] else "would be accepted" if told["diff"] else "in force"
    keys = ("in_force", "diff", "faults")
    return {"file": str(file), "state": state, **{key: told[key] for key in keys}}


_STATES = {
    "in force": " matches the active version, {0}",
    "refused": " is refused; the active version is {0}",
    "differs": " differs from the active version, {0}; it would change",
    "would be accepted": " would change, against version {0}",
}


def _diff_lines(found: Json) -> Iterator[str]:
    words = _STATES.get(found["state"], f": {found['state']}; the active version is {{0}}")
    yield found["file"] + words.format(found["in_force"])
    yield from (f"  {line}" for line in found["diff"])
    for fault in found["faults"]:
        words = fault.get("message") or f"got {fault['got']}, expected {fault['expected']}"
        yield f"  {fault['field']}: {words}"


@config_app.command("history")
@command
def history(
    client: Client,
    limit: Limit = 20,
    before: Annotated[
        int | None,
        typer.Option("--before", min=1, metavar="VERSION", help="Only older ones: the next page."),
    ] = None,
) -> Answer:
    """Every configuration that was in force: when, by whom, what it changed.

    \b
    Examples:
      zen config history
      zen config history --limit 5 --before 12
      zen config history --json
    """
    page = client.get("/config/versions", {"page_size": limit, "before": before})
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
    table = fitted(headings, rows, right="VERSION", below="CHANGES")
    older = f"{len(rows)} of {page['total']} shown; older: --before {page['next_before']}"
    return Answer(page, [table], [older] if page["next_before"] else ())


@config_app.command("rollback")
@command
def rollback(
    client: Client,
    version: Annotated[int, typer.Argument(min=1, metavar="VERSION", help="As history shows it.")],
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", metavar="FILE", help="Also write it there; the old one becomes FILE.before."
        ),
    ] = None,
) -> Answer:
    """Makes a new version with the content of an older one. Repeating it changes nothing.

    The service never writes the file: until you do (--write, or by hand) the file differs from
    what is in force. It stays without effect until its content changes.

    \b
    Examples:
      zen config rollback 6
      zen config rollback 6 --write /etc/zen/zen.yaml
    """
    done = client.post("/config/rollback", {"version": version, "by": whoami()})
    lines = [done["message"], *(f"  {line}" for line in done["diff"])]
    if write is not None:
        _write_back(write, client.get("/config")["in_force"])
        lines.append(f"written to {write}; what was there is in {write}.before")
    elif done["file"]["state"] == "differs":
        path = done["file"]["path"]
        same = f"{PROGRAM} config rollback {version} --write {path}"
        lines += [
            f"the file {path} differs now: it has no effect until its content changes",
            f"  to make it say the same: {same}",
        ]
    return Answer(done, lines)


def _write_back(file: Path, version: Json) -> None:
    """The version's document beside what belongs to the process that reads this very file."""
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
