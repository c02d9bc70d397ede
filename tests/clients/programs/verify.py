"""zen clients verify: recognises checkouts, gives each program its own stack, tells how it went."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import AsJson
from cli.output.printing import emit, fitted, note, put, say

if TYPE_CHECKING:
    from tests.clients.programs.frame import ClientCheck, ClientProgram, ClientSetup

app = typer.Typer(
    help="Clients of other systems: run the real programs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

Found = tuple["ClientProgram", Path]


@dataclass(frozen=True, slots=True)
class Verified:
    """A program, the version of it, and what was tried."""

    name: str
    commit: str
    checks: tuple[ClientCheck, ...]

    def count(self, outcome: str) -> int:
        return sum(check.outcome == outcome for check in self.checks)


@app.callback()
def _clients() -> None:
    """Clients of other systems: run the real programs."""


@app.command("list")
def list_programs(as_json: AsJson = False) -> None:
    """The programs that are known, and how their checkouts are recognised.

    \b
    Example:
      zen clients list
    """
    from tests.clients.programs.known import PROGRAMS

    if as_json:
        emit([{"name": p.name, "marks": list(p.marks), "needs": list(p.needs)} for p in PROGRAMS])
        return
    rows = [(p.name, ", ".join(p.needs), ", ".join(p.marks)) for p in PROGRAMS]
    put(fitted(("PROGRAM", "NEEDS", "ITS CHECKOUT HOLDS"), rows))


@app.command()
def verify(
    checkouts: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Checkouts of the programs.")
    ],
    write: Annotated[
        bool, typer.Option("--write", help="Put the results into docs/internals/compatibility.md.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Runs the real programs of other systems, each against a stack of its own.

    The stack listens where the program expects it, keeps what the program needs warm, and is
    stopped afterwards. The checkouts are copied first: nothing is written to them. Takes
    minutes; exits with 1 if a check fails.

    \b
    Examples:
      zen clients verify ../lumino-api ../jobscheduler
      zen clients verify --write ../*
    """
    import signal

    from tests.clients.programs.record import write_results

    # Told to end, it takes its stack along, as at Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = [_verify(program, checkout) for program, checkout in recognised(checkouts)]
    if as_json:
        emit([asdict(result) for result in results])
    else:
        _show(results)
    if write:
        target = write_results(results)
        note(f"results written to {target}")
    if any(result.count("failed") for result in results):
        raise typer.Exit(1)


def recognised(checkouts: Sequence[Path]) -> list[Found]:
    """Which program each directory holds, or an error that names the ones that hold none."""
    from tests.clients.programs.frame import ClientFailed
    from tests.clients.programs.known import PROGRAMS

    found, unknown = [], []
    for checkout in checkouts:
        programs = [program for program in PROGRAMS if program.is_at(checkout)]
        found += [(program, checkout.resolve()) for program in programs]
        if not programs:
            unknown.append(str(checkout))
    if unknown:
        raise ClientFailed(
            f"no known program in {', '.join(unknown)}; zen clients list says which are known"
        )
    return found


def _verify(program: ClientProgram, checkout: Path) -> Verified:
    from core.errors import ZenError
    from tests.clients.programs.frame import ClientCheck, commit_of

    note(f"{program.name}: starting a stack")
    if why := program.missing():
        return Verified(program.name, commit_of(checkout), (ClientCheck("all", "not run", why),))
    checks: list[ClientCheck] = []
    try:
        with setup_for(program, checkout) as setup:
            for check in program.checks(setup):
                checks.append(check)
                words = f": {check.words}" if check.words else ""
                note(f"{program.name}: {check.name}: {check.outcome}{words}")
    except ZenError as error:
        checks.append(ClientCheck("preparation", "failed", str(error)))
    return Verified(program.name, commit_of(checkout), tuple(checks))


@contextmanager
def setup_for(program: ClientProgram, checkout: Path) -> Iterator[ClientSetup]:
    """A stack where the program expects it; nothing of it is left afterwards."""
    import json

    from tests.clients.programs.frame import ClientFailed, ClientSetup, copy_of, last_words

    with tempfile.TemporaryDirectory(prefix="zen-clients-") as directory:
        scratch = Path(directory)
        copy = copy_of(checkout, scratch / "checkout")
        environ = {**os.environ, "ZEN_HOME": str(scratch / "home")}
        environ |= program.environ(copy, scratch) if program.environ else {}
        setup = ClientSetup(copy, scratch, "", {}, environ)
        started = setup.zen(*_words(program, scratch))
        try:
            if started.code:
                raise ClientFailed(f"its stack did not start: {last_words(started.output)}")
            running = json.loads((scratch / "home" / "run.json").read_text(encoding="utf-8"))
            yield ClientSetup(copy, scratch, _with_key(running), running, environ)
        finally:
            setup.zen("down")


def _words(program: ClientProgram, scratch: Path) -> tuple[str, ...]:
    import json

    port = ("--port", str(program.port), "--detach")
    if program.node is not None:
        return ("node", "--gpus", str(program.node), *port)
    config = ("--config", str(program.config(scratch))) if program.config else ()
    changes = ("--changes", json.dumps(program.changes)) if program.changes else ()
    return ("up", "--quiet", *port, *config, *changes)


def _show(results: Sequence[Verified]) -> None:
    rows = [
        (result.name, result.commit, *(result.count(o) for o in ("passed", "failed", "not run")))
        for result in results
    ]
    headings = ("PROGRAM", "COMMIT", "PASSED", "FAILED", "NOT RUN")
    put(fitted(headings, rows, right="PASSED FAILED"))
    for result in results:
        for check in result.checks:
            if check.outcome != "passed":
                say(f"{result.name}: {check.name}: {check.outcome}: {check.words}")
    sys.stdout.flush()


def _with_key(running: Mapping[str, Any]) -> str:
    """The address with the owner's key: all that a program needs."""
    key = Path(str(running["key_file"])).read_text(encoding="utf-8").strip()
    return str(running["api"]).replace("://", f"://zen:{key}@", 1)
