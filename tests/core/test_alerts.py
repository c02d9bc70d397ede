"""The registry of alerts."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter

import pytest

import core.alerts
from core.alerts import ALERTS, MESSAGE_MAX, PAGE, UNHEALTHY_VM, AlertKind
from core.changes import ClearAlert, RaiseAlert

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 18, tzinfo=UTC)
ROOMS = ("agent", "cli", "core", "db", "messaging", "migs", "orchestrator", "scheduler", "sim")
STORED = {
    "budget_spent",
    "budget_warning",
    "bus_refused",
    "cloud_missing",
    "cloud_other",
    "cloud_permission",
    "cloud_quota",
    "cloud_unclaimed",
    "cloud_unready",
    "config_not_adopted",
    "config_refused",
    "fleet_silent",
    "group_settings",
    "orphan_vm",
    "sick_vm",
    "unknown_vm",
}


def test_stored_kinds_stay() -> None:
    """Rows and operators' filters have these words: a kind may join, none may be renamed."""
    assert ALERTS.keys() >= STORED


@pytest.mark.parametrize("kind", ALERTS.values(), ids=ALERTS)
def test_declaration_is_whole(kind: AlertKind) -> None:
    """Every alert says what it means and what to do, and has a heading to link to."""
    assert kind.subject
    assert kind.meaning.endswith(".")
    assert kind.action.endswith(".")
    assert f"\n## `{kind.name}`\n" in (ROOT / PAGE).read_text(encoding="utf-8")
    assert kind.docs == f"{PAGE}#{kind.name}"
    assert [name for _, name, _, _ in Formatter().parse(kind.template) if name]


def test_alert_is_raised_by_kind_with_values() -> None:
    """Severity and words come from the declaration; a long message is cut."""
    assert UNHEALTHY_VM.raised("vm-1", NOW, vm="vm-1", reason="ECC errors") == RaiseAlert(
        "sick_vm", "vm-1", "warning", "vm-1 goes: ECC errors", NOW
    )
    assert UNHEALTHY_VM.cleared("vm-1", NOW) == ClearAlert("sick_vm", "vm-1", NOW)
    assert len(UNHEALTHY_VM.message(vm="vm-1", reason="x" * 9000)) == MESSAGE_MAX


def test_every_alert_is_raised_through_its_declaration() -> None:
    """No module but the registry makes one: its kind would be in no reference."""
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        made = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert "RaiseAlert" not in made or path == ROOT / "core/alerts.py", path


def test_every_declared_alert_is_raised_somewhere() -> None:
    """A declaration that nobody uses documents what cannot happen."""
    names = {name for name, value in vars(core.alerts).items() if isinstance(value, AlertKind)}
    used = "\n".join(
        path.read_text()
        for room in ("scheduler", "orchestrator")
        for path in (ROOT / room).rglob("*.py")
    )
    assert {name for name in names if name not in used} == set()
