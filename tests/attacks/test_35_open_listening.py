"""A configuration that listens on every address, in clear."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.stack import ROOT, small_config

pytestmark = pytest.mark.slow

OPEN = "0.0.0.0"  # refused


@pytest.mark.parametrize(
    "words",
    [("config", "check", "FILE"), ("serve", "--config", "FILE"), ("up", "--config", "FILE")],
    ids=lambda words: str(words[0]),
)
def test_open_listening_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Wherever a configuration is read, before anything is started, with the fix."""
    file = small_config(tmp_path / "zen.yaml")
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "api": {"host": OPEN}}))
    done = subprocess.run(
        [sys.executable, "-m", "cli", *(str(file) if word == "FILE" else word for word in words)],
        env={**os.environ, "ZEN_HOME": str(tmp_path / "home")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode not in (0, None), told
    assert "api.behind_proxy" in told
    assert "Traceback" not in told
