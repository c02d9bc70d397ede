"""The layout of the house: what import-linter cannot see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = [
    "agent",
    "cli",
    "config",
    "core",
    "db",
    "identity",
    "localbus",
    "messaging",
    "migrations",
    "migs",
    "orchestrator",
    "scheduler",
    "sim",
    "stores",
]
LINES_MAX = 500
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 7
SPEAKERS = {
    "google.cloud.compute_v1": {"migs"},
    "google.pubsub_v1": {"messaging", "localbus"},
    "google.cloud.pubsub_v1": {"messaging", "localbus"},
}

CLOUD_WORDS = re.compile(
    r"\b(STAGING|TERMINATED|DEPROVISIONING|SUSPENDING|SUSPENDED|REPAIRING|RECREATING|ABANDONING|"
    r"CREATING_WITHOUT_RETRIES|\w*RESOURCE_POOL_EXHAUSTED\w*|QUOTA_EXCEEDED|IP_SPACE_EXHAUSTED|"
    r"UNSUPPORTED_OPERATION|GPUS_ALL_REGIONS)\b"
)
"""Google Compute's statuses, actions and error codes."""
CLOUD_SPEAKERS = {"migs", "sim", "cli/commands/sim.py", "agent/node.py"}
"""The adapter, the pretend cloud and its commands; the node service, whose two words are Google's
on the wire to machines that are there anyway."""


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("library", SPEAKERS)
def test_google_libraries_are_spoken_in_their_room_only(library: str) -> None:
    """One adapter per library: the rest of the house has never heard of it."""
    found = {
        room
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if any(name == library or name.startswith(f"{library}.") for name in imports_of(path))
    }
    assert found <= SPEAKERS[library]


def test_no_room_is_missing_from_the_list() -> None:
    """A new top-level package must join the checks."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= {*ROOMS, "tests", "bench"}


def texts_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_google_statuses_and_errors_are_spoken_by_the_adapter_only() -> None:
    """A second cloud is a room beside migs/: nobody else knows the first one's words."""
    found = {
        f"{path.relative_to(ROOT)}: {word}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if room not in CLOUD_SPEAKERS and str(path.relative_to(ROOT)) not in CLOUD_SPEAKERS
        for text in texts_of(path)
        for word in CLOUD_WORDS.findall(text)
    }
    assert found == set()


WITHOUT_A_MODULE = {"attacks", "e2e", "clients", "examples"}
"""Tests of the whole: real stacks, other systems' clients, and what the documents show."""


def test_the_test_of_a_module_is_where_its_name_says() -> None:
    """a/b/module.py is tested by tests/a/b/test_module.py, or by test_module_<aspect>.py there."""
    tests = ROOT / "tests"
    lost = []
    for path in sorted(tests.rglob("test_*.py")):
        place = path.parent.relative_to(tests)
        if not place.parts or place.parts[0] in WITHOUT_A_MODULE:
            continue
        name = path.stem.removeprefix("test_")
        room = ROOT / place
        modules = [at.stem for at in room.glob("*.py")]
        modules += [at.parent.name for at in room.glob("*/__init__.py")]
        if not any(name == module or name.startswith(f"{module}_") for module in modules):
            lost.append(str(path.relative_to(ROOT)))
    assert lost == []


def test_no_file_is_too_long_to_read_in_a_sitting() -> None:
    """500 lines at most, in product code, benchmarks and tests."""
    long = [
        f"{path.relative_to(ROOT)}: {lines}"
        for room in (*ROOMS, "bench", "tests")
        for path in sorted((ROOT / room).rglob("*.py"))
        if room != "migrations"
        if (lines := len(path.read_text().splitlines())) > LINES_MAX
    ]
    assert long == []


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_functions_fit_a_screen() -> None:
    """60 lines and 7 parameters at most, in product code; migrations are scripts."""
    large = []
    for room in ROOMS:
        if room == "migrations":
            continue
        for path in sorted((ROOT / room).rglob("*.py")):
            for function in _functions(path):
                of = function.args
                names = [arg.arg for arg in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
                taken = len([name for name in names if name not in ("self", "cls")])
                lines = (function.end_lineno or function.lineno) - function.lineno + 1
                if lines > FUNCTION_LINES_MAX or taken > PARAMETERS_MAX:
                    where = f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
                    large.append(f"{where}: {lines} lines, {taken} parameters")
    assert large == []


def test_a_public_class_name_is_defined_once() -> None:
    """A name means one thing."""
    defined: dict[str, list[str]] = {}
    for room in (*ROOMS, "bench"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    defined.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


def test_every_migration_has_a_number_of_its_own() -> None:
    """Two steps with one number would both follow the same one, and no database could be made."""
    files = sorted((ROOT / "migrations" / "versions").glob("0*.py"))
    number = re.compile(r'^revision = "(\d+)"', re.MULTILINE)
    numbers = [number.findall(path.read_text()) for path in files]
    assert numbers == [[path.name[:4]] for path in files]
    assert len({path.name[:4] for path in files}) == len(files)
