"""The `zen` command: one place where commands are named and where errors become one line.

Nothing heavy is imported here: `zen --help` answers in a blink, each command loads what it needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer.main import get_command

from cli import aliases
from cli.commands import (
    access,
    artifacts,
    capacity,
    chaos,
    checks,
    config_versions,
    cost,
    dead_letters,
    demo,
    fleet,
    jobs,
    login,
    node,
    operate,
    proxy,
    secrets,
    sessions,
    show,
    sim,
    simulate,
    status,
    submit,
    tenants,
    up,
    whatif,
    workers,
)
from cli.output.printing import clean
from cli.paths import PROGRAM, WITH_TESTS
from cli.reference import command as reference
from core.errors import ZenError

app = typer.Typer(
    name="zen",
    help="Finds GPUs across regions, runs jobs on them, and gives the GPUs back.",
    epilog=f"Begin with: {PROGRAM} up, then {PROGRAM} submit --gpus 1 -- python3 -c 'print(42)'",
    no_args_is_help=True,
    # Plain help: rich's would double the time that `zen --help` takes.
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Everything after the first word of the job's command is the command's, also its options.
_PASS_ON = {"allow_interspersed_args": False}


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


app.command()(up.up)
app.command()(up.down)
app.command()(node.node)
app.command()(status.status)
app.command(context_settings=_PASS_ON)(submit.submit)
app.command()(jobs.jobs)
app.command()(show.show)
app.command()(jobs.logs)
app.command()(jobs.stop)
app.command()(artifacts.artifacts)
app.command()(artifacts.fetch)
# Words of other command lines (cli/aliases.py); also here, so that habits do no harm.
app.command("list", hidden=True)(aliases.list_jobs)
app.command("cancel", hidden=True)(jobs.stop)
app.command("get", hidden=True)(show.show)
app.command("create-tenant", hidden=True)(aliases.create_tenant)
app.command()(fleet.clusters)
app.command()(fleet.vms)
app.command()(capacity.capacity)
app.command()(fleet.alerts)
app.command()(cost.cost)
app.command()(demo.demo)
app.command()(chaos.chaos)
app.command()(simulate.simulate)
app.command()(whatif.whatif)
app.add_typer(tenants.app, name="tenants")
app.add_typer(access.keys_app, name="keys")
app.add_typer(access.grants_app, name="grants")
app.add_typer(access.audit_app, name="audit")
app.add_typer(sessions.sessions_app, name="sessions")
app.command()(access.whoami)
app.command()(login.login)
app.command()(login.logout)
app.command()(proxy.proxy)
app.add_typer(secrets.app, name="secrets")
app.add_typer(workers.app, name="workers")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(sim.app, name="sim")
app.add_typer(config_versions.app, name="config")
app.add_typer(operate.infra_app, name="infra")
app.add_typer(operate.db_app, name="db")
app.command()(operate.serve)
app.command()(reference.docs)
if WITH_TESTS:
    from tests.clients.programs import verify as clients

    app.add_typer(clients.app, name="clients")
    app.command()(checks.check)
    app.command(
        "test",
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "allow_interspersed_args": False,
        },
    )(checks.run_tests)


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
    text = _wrong_value(error) or error.format_message().removeprefix("Invalid value: ")
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(text + "\n")
        return error.exit_code
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    return _fail(f"{text}{hint}", name, error.exit_code)


def _wrong_value(error: typer.TyperException) -> str | None:
    """A value of the wrong type or size, in our words; None for other faults. The library that
    reads the values says what is wrong as the cause of the error."""
    errors, param = getattr(error.__cause__, "errors", None), getattr(error, "param", None)
    if errors is None or param is None:
        return None
    fault = errors()[0]
    limits = fault.get("ctx", {})
    expected = {
        "int_parsing": "a whole number",
        "float_parsing": "a number",
        "greater_than_equal": f"at least {limits.get('ge', 0):g}",
        "less_than_equal": f"at most {limits.get('le', 0):g}",
    }.get(fault["type"])
    name = param.opts[0] if param.param_type_name == "option" else param.metavar
    if expected is None:
        return f"{name}: {limits.get('error', fault['msg'])}".rstrip(".")
    return f"{name}: got {fault['input']}, expected {expected}"


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
