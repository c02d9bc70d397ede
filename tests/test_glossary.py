"""docs/glossary.md gives each word one meaning."""

import re
from collections import Counter
from pathlib import Path

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
