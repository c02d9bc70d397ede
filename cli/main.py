"""The `zen` command: runs what was called; errors become one line. Its commands are named in
cli/command_table.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer.main import get_command

from cli.loading import LazyGroup
from cli.output.printing import clean
from cli.paths import PROGRAM
from core.errors import ZenError

app = typer.Typer(
    name="zen",
    cls=LazyGroup,
    help="Finds GPUs across regions, runs jobs on them, and gives the GPUs back.",
    epilog=f"Begin with: {PROGRAM} up, then {PROGRAM} submit --gpus 1 -- python3 -c 'print(42)'",
    no_args_is_help=True,
    # Plain help: rich's would double the time that `zen --help` takes.
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("pipeline-zen-jobs-scheduler")
        except PackageNotFoundError:
            found = "0.1.0 (checkout)"
        typer.echo(f"zen {found}")
        raise typer.Exit


@app.callback()
def _zen(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Finds GPUs across regions, runs jobs on them, and gives the GPUs back."""


def run(arguments: Sequence[str], name: str = "zen") -> int:
    """Runs one command; returns its exit code. Errors that people can act on become one line."""
    try:
        code = get_command(app).main(list(arguments), prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        return usage(error, name)
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except SystemExit as quiet:  # how typer ends when the reader of our output is gone
        return quiet.code if isinstance(quiet.code, int) else 1
    except ZenError as error:
        return _fail(str(error), name)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _fail(text, name)
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """The console script."""
    finish(run(sys.argv[1:]))


def finish(code: int) -> NoReturn:
    """Ends the process."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _close_quietly()
    sys.exit(code)


def usage(error: typer.TyperException, name: str) -> int:
    """A wrong call, in one line."""
    # Our own refusals of a value name the option themselves.
    text = error.format_message().removeprefix("Invalid value: ")
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(text + "\n")
        return error.exit_code
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    return _fail(f"{text}{hint}", name, error.exit_code)


def _fail(text: str, name: str, code: int = 1) -> int:
    # A list of faults keeps its lines; anything else is one line.
    lines = "\n".join(clean(line) for line in text.rstrip().split("\n"))
    sys.stderr.write(f"{name}: {lines}\n")
    return code


def _close_quietly() -> None:
    """The reader of our output is gone: the interpreter's own flush at exit must not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
