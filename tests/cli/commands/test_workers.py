"""zen workers keys: the scheduler's key file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from messaging.proofs.key_file import read_scheduler_keys
from messaging.proofs.keys import parse_public_keys


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["workers", "keys", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_keys_are_made_and_shown(tmp_path: Path) -> None:
    """A second create adds a key; show prints the public halves alone."""
    file = tmp_path / "workers.key"
    run("create", str(file))
    run("create", str(file))
    keys = read_scheduler_keys(file)
    assert len(keys) == 2
    shown = run("show", str(file)).strip()
    assert parse_public_keys(shown) == tuple(key.public for key in keys)
    assert not any(key.text in shown for key in keys)
    assert json.loads(run("show", str(file), "--json"))["public"] == shown


def test_file_is_full_at_four(tmp_path: Path) -> None:
    """The error says what to do."""
    file = tmp_path / "workers.key"
    for _ in range(4):
        run("create", str(file))
    with pytest.raises(Exception, match="take one out"):
        CliRunner().invoke(app, ["workers", "keys", "create", str(file)], catch_exceptions=False)
