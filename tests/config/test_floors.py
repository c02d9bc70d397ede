"""Floors by the hour, as they are written in the configuration."""

from __future__ import annotations

from datetime import time
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.load import load_settings
from core.floors import Floor
from tests.config.test_load import MINIMAL

FLOOR = '{days: mon-fri, from: "08:00", to: "18:00", timezone: Europe/Berlin, vm_min: 2}'


def load(tmp_path: Path, floors: str, more: str = "") -> tuple[Floor, ...]:
    path = tmp_path / "zen.yaml"
    path.write_text(f"{MINIMAL}    floors: [{floors}]\n{more}")
    return load_settings(path, {}).clusters[0].floors


def test_floor_is_read(tmp_path: Path) -> None:
    """Days, hours, time zone and how many."""
    (floor,) = load(tmp_path, FLOOR)
    assert (sorted(floor.days), floor.start, floor.end) == ([0, 1, 2, 3, 4], time(8), time(18))
    assert (floor.timezone, floor.vm_min) == ("Europe/Berlin", 2)


@pytest.mark.parametrize(
    ("word", "value", "expected"),
    [
        ("days", "moonday", "days of the week"),
        ("from", '"8 o\'clock"', "a time of day"),
        ("timezone", "Europe/Atlantis", "a time zone"),
        ("vm_min", "9", "a whole number from 0 to 3"),
    ],
)
def test_faults_name_the_floor(tmp_path: Path, word: str, value: str, expected: str) -> None:
    """With what came and what was expected."""
    good = {"days": "mon-fri", "from": '"08:00"', "to": '"18:00"', "timezone": "UTC", "vm_min": "2"}
    text = ", ".join(f"{key}: {item}" for key, item in {**good, word: value}.items())
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"{{{text}}}")
    assert f"clusters.1xl4.floors.0.{word}" in str(caught.value)
    assert expected in str(caught.value)


def test_policy_is_read_and_its_relations_checked(tmp_path: Path) -> None:
    """The bands must contain each other."""
    with pytest.raises(ConfigError, match=r"capacity\.search_band"):
        load(tmp_path, "", "capacity: {price_band: 3.0}\n")
