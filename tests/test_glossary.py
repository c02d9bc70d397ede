"""docs/glossary.md gives each word one meaning."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
GLOSSARY = HOUSE / "docs" / "glossary.md"


def defined(page: str) -> list[str]:
    """The words that a page defines: what its tables set in bold, one entry per definition."""
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    return [word.casefold() for row in rows for word in re.findall(r"\*\*(.+?)\*\*", row)]


def twice(page: str) -> list[str]:
    return sorted(word for word, times in Counter(defined(page)).items() if times > 1)


def test_each_word_has_one_meaning() -> None:
    """No word of the glossary is defined twice."""
    page = GLOSSARY.read_text()
    assert len(defined(page)) > 60
    assert twice(page) == []


def test_a_word_that_stands_twice_is_found() -> None:
    """The check sees a second meaning, also inside another word's row and in capitals."""
    page = "| **slack** | a | |\n| **group** | b, with a **Slack** | |\n"
    assert twice(page) == ["slack"]


REPLACED = {
    "beat": "heartbeat",
    "beats": "heartbeats",
    "belief": "success probability",
    "draft": "plan builder",
    "drafts": "plan builders",
    "evict": "preempt",
    "experience": "supply history",
    "keeper": "shim",
    "living": "active",
    "muster": "gather a gang",
    "picture": "snapshot, plan input",
    "promise": "reservation",
    "scene": "analysis",
    "sick": "unhealthy",
    "team": "gang",
    "teams": "gangs",
    "trial": "simulation",
    "trouble": "region block",
    "troubles": "region blocks",
    "whys": "pending reasons",
    "yard": "simulation",
}
"""Parts of names that no identifier of the planners, the store and the scheduler has any more."""

ROOMS = (
    "bench/replay", "core", "db", "migs", "orchestrator", "scheduler", "sim/memory", "sim/replay",
)  # fmt: skip

STORED = {"last_beat_at", "belief", "belief_bar", "usual_belief", "living_hours"}
"""Columns, REST fields and configuration keys keep their spelling."""


def identifiers(source: str) -> set[str]:
    """Every name in the code: of modules, classes, functions, arguments, variables, attributes."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def old_words(name: str) -> set[str]:
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)
    return set() if name in STORED else {part.lower() for part in parts} & set(REPLACED)


@pytest.mark.parametrize("room", ROOMS)
def test_no_identifier_has_a_replaced_word(room: str) -> None:
    """Where a word was replaced, the old one does not come back as a name."""
    found = {
        f"{path.relative_to(HOUSE)}: {name}: say {', '.join(REPLACED[w] for w in old_words(name))}"
        for path in sorted((HOUSE / room).rglob("*.py"))
        for name in identifiers(path.read_text())
        if old_words(name)
    }
    assert sorted(found) == []


def test_a_replaced_word_is_found_by_its_part() -> None:
    """The check reads parts of names, so that a longer word is not taken for an old one."""
    assert old_words("VmBeat") == old_words("apply_beats") - {"beats"} | {"beat"}
    assert old_words("heartbeat") == old_words("last_beat_at") == set()


def test_a_public_class_name_is_defined_once() -> None:
    """One name, one class in the product and the benchmarks; private ones may repeat."""
    homes: dict[str, list[str]] = {}
    for path in sorted(HOUSE.rglob("*.py")):
        top = path.relative_to(HOUSE).parts[0]
        if top in {"tests", "examples"} or top.startswith("."):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(HOUSE)))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
