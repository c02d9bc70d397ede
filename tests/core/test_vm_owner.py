"""No module but core/vm.py names a VM's state."""

from __future__ import annotations

import ast
from pathlib import Path

from core.vm import VmState

ROOT = Path(__file__).parents[2]
HISTORY = "migrations"
"""Migrations say what was true when they were written."""


def vm_states_named(path: Path) -> list[str]:
    """Where a module names a state of a VM: by its enum, in a comparison, or in SQL."""
    text = path.read_text()
    if not any(state in text for state in VmState) and "state=" not in text:
        return []
    tree = ast.parse(text)
    aliases = {"VmState"}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="core.vm", names=names):
                aliases |= {a.asname or a.name for a in names if a.name in ("VmState", "V")}
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id="VmState")):
                aliases.add(name)
    found = [node for node in ast.walk(tree) if names_vm_state(node, aliases)]
    return [f"{path.relative_to(ROOT)}: {ast.unparse(node)[:90]}" for node in found]


def names_vm_state(node: ast.AST, aliases: set[str]) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attr):
            return name in aliases and attr in VmState.__members__
        case ast.Compare(left=left, comparators=others):
            constants = (c for side in (left, *others) for c in ast.walk(side))
            said = {c.value for c in constants if isinstance(c, ast.Constant)}
            return bool(said & set(VmState)) and "state" in ast.unparse(node)
        case ast.Call(func=ast.Name(id="replace"), keywords=words):
            return any(word.arg == "state" for word in words)
        case ast.Constant(value=str(text)):
            return any(
                f"state {sign} '{state}'" in text for sign in ("=", "<>") for state in VmState
            )
    return False


def test_state_of_a_vm_is_assigned_and_compared_in_core_vm_only() -> None:
    """Other modules ask for a transition (advance_vm) or for a predicate (vm.state.in_flight): a
    new state is one module's business."""
    rooms = {path.parent for path in ROOT.glob("*/__init__.py")} - {ROOT / HISTORY, ROOT / "tests"}
    paths = [path for room in rooms for path in room.rglob("*.py")]
    assert len(paths) > 300, "the modules are found"
    owner = ROOT / "core" / "vm.py"
    found = [line for path in paths if path != owner for line in vm_states_named(path)]
    assert not found, "\n".join(found)
    assert vm_states_named(owner), "the check sees a state where there is one"
