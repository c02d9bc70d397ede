"""What containers are given: from the configuration over the template to the worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.metadata import parse_settings
from cli.local.templates import metadata
from config.errors import ConfigError
from config.load import load_settings
from core.containers import ContainerRules
from core.errors import BadInput
from tests.config.test_load import MINIMAL

VM = {"name": "vm", "id": "1", "zone": "z", "zen-cluster": "c", "zen-project": "p",
      "zen-prefix": "x", "zen-store": "file:///s", "zen-scheduler-keys": "keys"}  # fmt: skip


def test_from_the_file_to_the_worker(tmp_path: Path) -> None:
    """Mounts and network reach the worker as they were written; the default needs no words."""
    file = tmp_path / "zen.yaml"
    file.write_text(f"{MINIMAL}containers:\n  mounts: [/mnt/data:/data]\n  network: none\n")
    settings = load_settings(file, {})
    said = metadata(settings, settings.clusters[0], "keys")["zen-containers"]
    rules = parse_settings({**VM, "zen-containers": said}).containers
    assert rules == settings.containers == ContainerRules(("/mnt/data:/data",), "none")
    file.write_text(MINIMAL)
    usual = load_settings(file, {})
    assert "zen-containers" not in metadata(usual, usual.clusters[0], "keys")
    assert parse_settings(VM).containers == ContainerRules()
    named = load_settings(file, {"ZEN_CONTAINERS__MOUNTS": "/a:/b,/c:/d:rw"})
    assert named.containers.mounts == ("/a:/b", "/c:/d:rw")


@pytest.mark.parametrize(
    "words", ["mounts: [data]", "mounts: [/x:/zen/y]", "network: moon", "user: root"]
)
def test_wrong_settings_name_the_key(tmp_path: Path, words: str) -> None:
    """A wrong mount or network is refused with its key."""
    file = tmp_path / "zen.yaml"
    file.write_text(f"{MINIMAL}containers: {{{words}}}\n")
    with pytest.raises(ConfigError, match=f"containers.{words.partition(':')[0]}"):
        load_settings(file, {})


def test_wrong_metadata_is_refused() -> None:
    """A worker does not start with mounts that it cannot read."""
    with pytest.raises(BadInput, match="zen-containers"):
        parse_settings({**VM, "zen-containers": '{"mounts": ["x"]}'})
