"""No control flow on prose."""

from __future__ import annotations

import ast
import re

from tests.test_house import ROOMS, ROOT

PROSE = re.compile(r"(^|_)(reason|why|words|detail|message|refusal|ending|error)s?$")
"""Names of values that are written for people."""
READS_PROSE = {
    "agent/containers/docker.py": "Podman's words: its API has no code for this",
    "cli/aliases.py": "the words of a command line",
    "cli/output/follow.py": "an exit code that the reason names is not printed twice",
    "sim/virtual/clients.py": "a client of the simulation: it has nothing but the words",
}


def reads_prose(node: ast.AST) -> bool:
    """Whether it looks into a sentence: startswith, endswith, or `in` with a text of ours."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        asks = node.func.attr in ("startswith", "endswith")
        return asks and bool(PROSE.search(name_of(node.func.value)))
    if isinstance(node, ast.Compare):
        pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
        return any(
            isinstance(op, ast.In | ast.NotIn)
            and isinstance(left, ast.Constant | ast.JoinedStr)
            and PROSE.search(name_of(right)) is not None
            for left, op, right in pairs
        )
    return False


def name_of(node: ast.AST) -> str:
    """The name under which a value is read: `vm.reason`, `str(error)` and `job["reason"]` too."""
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name("str"), args=[inner]) | ast.Call(func=inner):
            return name_of(inner)
        case ast.Subscript(slice=ast.Constant(str(name))):
            return name
        case ast.Subscript(value=inner):
            return name_of(inner)
        case _:
            return ""


def test_no_control_flow_on_prose() -> None:
    """Reasons are values with a kind: what is written for people may be reworded by anybody."""
    found = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if any(map(reads_prose, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == READS_PROSE.keys()
