"""The image gets what the service needs, and nothing that only tests need."""

from __future__ import annotations

import re
import tomllib

from deploy.runtime_lock import LOCK, ROOT, RUNTIME_LOCK, runtime_part

LOCKED = """\
# by uv
click==8.5 \\
    --hash=sha256:aa
    # via
    #   linter
    #   typer
linter==1.0 \\
    --hash=sha256:bb
    # via pipeline-zen-jobs-scheduler (pyproject.toml:dev)
typer==0.29 ; python_version > '3' \\
    --hash=sha256:cc \\
    --hash=sha256:dd
    # via pipeline-zen-jobs-scheduler (pyproject.toml)
"""


def test_what_only_tests_want_is_left_out() -> None:
    """A package that both want stays, with its hashes and conditions."""
    body = runtime_part(LOCKED).partition("made by")[2].partition("\n")[2]
    assert body == (
        "click==8.5 \\\n    --hash=sha256:aa\n"
        "typer==0.29 ; python_version > '3' \\\n    --hash=sha256:cc \\\n    --hash=sha256:dd\n"
    )


def test_the_stored_lock_is_a_part_of_the_whole_one() -> None:
    """A change of requirements.lock needs `python3 deploy/runtime_lock.py` after it."""
    assert RUNTIME_LOCK.read_text() == runtime_part(LOCK.read_text())


def test_no_package_of_checks_is_in_it() -> None:
    """The group dev of pyproject.toml, but for what the service itself needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pins = set(re.findall(r"^([a-z0-9._-]+)==", RUNTIME_LOCK.read_text(), re.MULTILINE))
    wanted = {_name(word) for word in project["project"]["dependencies"]}
    assert wanted <= pins
    assert not {"pytest", "mypy", "ruff", "hypothesis", "testcontainers"} & pins


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=; ]", requirement)[0].lower()
