"""The page of all commands: what `--help` says, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cli.reference.markdown import MADE_BY, cell, code, table

_HEAD = f"""\
# Commands

{MADE_BY}
`zen` is `./zen` in a checkout. Every command has `--help`; commands that answer have `--json`, for
scripts.

Exit codes:

| Code | When |
|---|---|
| 0 | fine |
| 1 | refused or failed, or nothing answers; one line on stderr says why |
| 2 | wrong usage; or a price that must be confirmed, and nobody can be asked (`--yes` agrees) |
| 3 | `zen status`: nothing runs, or it does not answer |
| 124 | `zen wait --timeout`: the jobs are not over |
| 130 | interrupted (Ctrl-C) |

`zen submit --wait`, `zen resubmit --wait` and `zen wait` end with the job's own exit code: 0 if it
succeeded, its code if it failed by one (128 + n after signal n), else 1 (cancelled, or without a
code).
"""


def page() -> str:
    """The whole page."""
    from typer.main import get_command

    from cli.main import app

    found = list(_commands(get_command(app), "zen"))
    rows = [(f"[`{path}`](#{_anchor(path)})", cell(_summary(one))) for path, one in found]
    parts = [_HEAD, table(("Command", ""), rows), *(_section(path, one) for path, one in found)]
    return "\n".join(parts)


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Commands that people call, with their whole names."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _section(path: str, command: Any) -> str:
    text, _, examples = (command.help or "").replace("\b", "").partition("Example")
    parts = [f"## {path}\n", " ".join(text.split()) + "\n"]
    rows = [(_name(param), cell(_meaning(param))) for param in command.params if not param.hidden]
    if rows:
        parts.append(table(("Argument or option", "Meaning"), rows))
    lines = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
    if lines:
        shown = "```sh show: the tests run every example of --help"
        parts.append("\n".join([shown, *lines, "```\n"]))
    return "\n".join(parts)


def _summary(command: Any) -> str:
    return (command.help or "").replace("\b", "").strip().splitlines()[0]


def _name(param: Any) -> str:
    if param.param_type_name == "argument":
        return code(param.metavar or param.name.upper())
    names = "/".join(", ".join(words) for words in (param.opts, param.secondary_opts) if words)
    return code(names if param.is_flag or not param.metavar else f"{names} {param.metavar}")


def _meaning(param: Any) -> str:
    default = param.default
    said = "" if default in (None, False, True, "", ()) or callable(default) else str(default)
    return f"{param.help or ''}{f' Default: {said}.' if said else ''}"


def _anchor(path: str) -> str:
    return path.replace(" ", "-")
