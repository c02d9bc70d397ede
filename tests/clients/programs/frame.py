"""What a client program is, and the setup that it is run on.

A module of this package describes one upstream program: how its checkout is recognised, what it
hard-codes, and the checks that run it. Nothing of the program itself is kept here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from core.errors import ZenError

CALL_TIMEOUT_S = 300.0
WORDS_MAX = 400

Outcome = Literal["passed", "failed", "not run"]


class ClientFailed(ZenError):
    """A program could not even be prepared."""

    code = "client_failed"


@dataclass(frozen=True, slots=True)
class ClientCheck:
    """One thing that a client does, and how it went."""

    name: str
    outcome: Outcome
    words: str = ""
    """Why it failed or was not run: the last words of the program, bounded."""


@dataclass(frozen=True, slots=True)
class Done:
    """A program that ended."""

    code: int
    output: str
    """stdout and stderr, as they came."""


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """Where one client program runs: its private checkout, a scratch directory, a stack."""

    checkout: Path
    """A copy: nothing is ever written to the checkout that was given."""
    scratch: Path
    api: str
    """The address of the API, on the port that the program hard-codes."""
    stack: Mapping[str, Any]
    """run.json of the stack: bus, bus_rest, sim, …"""
    environ: Mapping[str, str]
    """The environment of the calls: ZEN_HOME names the stack."""

    def call(
        self,
        *argv: str,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
        stdin: str = "",
    ) -> Done:
        """Runs a program to its end; one that takes too long is killed and has code 124."""
        try:
            done = subprocess.run(
                argv,
                cwd=cwd or self.checkout,
                env={**self.environ, **(environ or {})},
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
            return Done(124, f"{said}\nended after {timeout_s:g} s")
        except OSError as error:
            return Done(127, f"{argv[0]}: {error.strerror}")
        return Done(done.returncode, done.stdout)

    def zen(
        self, *arguments: str, cwd: Path | None = None, timeout_s: float = CALL_TIMEOUT_S
    ) -> Done:
        """A command of ours, against this stack."""
        # -P: a checkout may hold directories with the names of our packages.
        argv = (sys.executable, "-P", "-m", "cli", *arguments)
        return self.call(*argv, cwd=cwd or self.scratch, timeout_s=timeout_s)

    def python(self, *packages: str) -> str:
        """The interpreter of an environment with these packages, made once per setup."""
        venv = self.scratch / "venv"
        interpreter = venv / "bin" / "python"
        if not interpreter.exists():
            self._prepare(sys.executable, "-m", "venv", str(venv))
        if packages:
            self._prepare(str(interpreter), "-m", "pip", "install", "--quiet", *packages)
        return str(interpreter)

    def _prepare(self, *argv: str) -> None:
        done = self.call(*argv)
        if done.code:
            raise ClientFailed(f"{' '.join(argv[:4])} … failed: {last_words(done.output)}")


def judged(name: str, done: Done, *expected: str, code: int = 0) -> ClientCheck:
    """Passed if it ended with that code and said all that was expected."""
    missing = [words for words in expected if words not in done.output]
    if done.code != code:
        why = f"exit code {done.code}: {last_words(done.output)}"
        return ClientCheck(name, "failed", why)
    if missing:
        return ClientCheck(name, "failed", f"did not say {missing[0]!r}: {last_words(done.output)}")
    return ClientCheck(name, "passed")


def pytest_checks(
    setup: ClientSetup,
    python: str,
    arguments: Sequence[str],
    *,
    prefix: str = "",
    not_run: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = CALL_TIMEOUT_S,
) -> Iterator[ClientCheck]:
    """The program's own pytest suite: a check for each test. `not_run` maps a part of a test's
    name to the reason why it cannot be run here; such tests are deselected."""
    report = setup.scratch / "report.xml"
    report.unlink(missing_ok=True)
    left_out = not_run or {}
    words = " and ".join(f"not {part}" for part in left_out)
    select = ("-k", words) if words else ()
    argv = (python, "-m", "pytest", "-q", f"--junitxml={report}", *select, *arguments)
    done = setup.call(*argv, environ=environ, timeout_s=timeout_s)
    yield from (ClientCheck(f"{prefix}{part}", "not run", why) for part, why in left_out.items())
    if not report.exists():
        yield ClientCheck(f"{prefix}pytest", "failed", last_words(done.output))
        return
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314  # our own file
        yield _case(case, prefix)


def _case(case: ElementTree.Element, prefix: str) -> ClientCheck:
    name = f"{prefix}{case.get('name', '')}"
    for tag in ("failure", "error"):
        if (found := case.find(tag)) is not None:
            return ClientCheck(name, "failed", last_words(found.get("message") or found.text or ""))
    if (skipped := case.find("skipped")) is not None:
        return ClientCheck(name, "not run", last_words(skipped.get("message") or ""))
    return ClientCheck(name, "passed")


def last_words(output: str) -> str:
    """The end of what was said, on one line."""
    text = " ".join(output.split())
    return text if len(text) <= WORDS_MAX else f"…{text[-WORDS_MAX:]}"


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """One upstream program."""

    name: str
    """owner/repository, as on GitHub."""
    marks: tuple[str, ...]
    """Files that tell its checkout from others."""
    checks: Callable[[ClientSetup], Iterator[ClientCheck]]
    port: int = 0
    """That it hard-codes; 0: it can be told."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Merged over the configuration of `zen up`: a warm floor, a setting that it relies on."""
    node: int | None = None
    """It runs on `zen node` with so many pretended GPUs instead of `zen up`."""
    config: Callable[[Path], Path] | None = None
    """Writes a whole configuration into the scratch directory, if changes are not enough."""
    environ: Callable[[Path, Path], Mapping[str, str]] | None = None
    """(checkout, scratch) → variables that the stack itself must be started with."""
    needs: tuple[str, ...] = ()
    """Programs that must be on PATH; without one nothing of it is run, with that reason."""
    differences: tuple[str, ...] = ()
    """What remains different, for docs/internals/compatibility.md."""

    def is_at(self, checkout: Path) -> bool:
        return all((checkout / mark).exists() for mark in self.marks)

    def missing(self) -> str | None:
        """Why it cannot be run here, or None."""
        absent = [need for need in self.needs if shutil.which(need) is None]
        return f"{', '.join(absent)}: not installed" if absent else None


def copy_of(checkout: Path, target: Path) -> Path:
    """A private copy without its history."""
    shutil.copytree(checkout, target, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv"))
    return target


def commit_of(checkout: Path) -> str:
    """The version that was tried, or a dash."""
    done = subprocess.run(
        ("git", "-C", str(checkout), "rev-parse", "--short=10", "HEAD"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GIT_CONFIG_COUNT": "0"},
    )
    return done.stdout.strip() or "-"
