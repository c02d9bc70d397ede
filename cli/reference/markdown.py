"""Markdown as the reference pages need it, and the words that stand under a name in the code."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterable, Sequence

MADE_BY = "*Made from the code by `zen docs`; do not edit this page.*\n"


def cell(words: object) -> str:
    """Words as a cell of a table shows them: `<` would begin a tag, `|` a cell."""
    return " ".join(str(words).split()).replace("<", "&lt;").replace("|", "\\|")


def code(words: object) -> str:
    """A cell in the letters of code."""
    return f"`{str(words).replace('|', chr(92) + '|')}`"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells as they are: `cell` and `code` make them safe."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---") + "\n"


def meanings(kind: type) -> dict[str, str]:
    """Name → the words under it in the class: they are written once, there."""
    (found,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(found, ast.ClassDef)
    said = {}
    for field, words in itertools.pairwise(found.body):
        target: ast.expr | None = field.target if isinstance(field, ast.AnnAssign) else None
        if isinstance(field, ast.Assign):
            (target,) = field.targets
        if isinstance(target, ast.Name) and isinstance(words, ast.Expr):
            said[target.id] = " ".join(str(ast.literal_eval(words.value)).split())
    return said
