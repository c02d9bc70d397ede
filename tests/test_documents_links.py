"""No document, comment, help text or alert names a page, heading or file that does not exist."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"(?<!`)\]\((?P<target>[^)\s]+)\)")
_PAGE = re.compile(r"(?<![\w/.-])docs/(?:decisions/\d{4}\b(?!-)|[\w./-]+\.md(?:#[\w-]+)?)")
_QUOTED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$")
_FENCED = re.compile(r"(?ms)^ *```.*?^ *```$")
_CODE = re.compile(r"`[^`\n]*`")
_TEXTS = {".md", ".py", ".yaml", ".yml", ".toml", ".sh", ".service", ".mako"}
LINES_MAX = 80
HISTORY = {"CHANGELOG.md"}
"""It names files as they were at the time."""


def tracked() -> list[Path]:
    """The files of the repository."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


FILES = tracked()
PAGES = [path for path in FILES if path.suffix == ".md"]
TEXTS = [path for path in FILES if path.suffix in _TEXTS or not path.suffix]
ROOMS = {path.relative_to(ROOT).parts[0] for path in FILES if path.parent != ROOT}


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a link may name behind `#`: the headings, as GitHub writes them."""
    found: list[str] = []
    for line in _FENCED.sub("", page.read_text(encoding="utf-8")).splitlines():
        if heading := _HEADING.match(line):
            words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
            name = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            again = sum(
                one == name or re.fullmatch(rf"{name}-\d+", one) is not None for one in found
            )
            found.append(f"{name}-{again}" if again else name)
    found += re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text(encoding="utf-8"))
    return frozenset(found)


def fault(start: Path, target: str) -> str:
    """Why the link leads nowhere; empty if it leads somewhere."""
    name, _, anchor = target.partition("#")
    path = Path(os.path.normpath(start / name)) if name else start
    if not path.exists() and not any(path.parent.glob(f"{path.name}-*.md")):  # decisions/0006
        return f"{target}: no such file"
    if anchor and (not path.is_file() or anchor not in anchors(path)):
        return f"{target}: no such heading"
    return ""


def links_of(page: Path) -> Iterator[str]:
    """What a page says about other pages, without addresses of the web."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for found in _LINK.finditer(_CODE.sub("``", text)):
        if "://" not in found["target"] and not found["target"].startswith("mailto:"):
            yield found["target"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings that a page links to exist."""
    faults = [
        words
        for target in links_of(page)
        if (words := fault(page if target.startswith("#") else page.parent, target))
    ]
    assert not faults, faults


def test_pages_that_code_and_texts_name_exist() -> None:
    """Help texts, alerts, comments, configurations and sentences: `docs/…` is there."""
    faults = [
        f"{path.relative_to(ROOT)}: {words}"
        for path in TEXTS
        if path != Path(__file__)
        for target in _PAGE.findall(path.read_text(encoding="utf-8", errors="ignore"))
        if (words := fault(ROOT, target))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page: Path) -> None:
    """`scheduler/app.py` in a page of today is a file of today."""
    if page.relative_to(ROOT).as_posix() in HISTORY:
        return
    faults = [
        name
        for name in _QUOTED.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
        if "/" in name and name.split("/")[0] in ROOMS and not (ROOT / name).exists()
    ]
    assert not faults, faults


def test_dead_ends_are_found(tmp_path: Path) -> None:
    """Or the tests above could not fail."""
    page = tmp_path / "a.md"
    page.write_text(
        '# One `two`: three\n## One\n## One\n[a](b.md) `[c](d.md)` [e](#one-1) <a id="x">'
    )
    assert list(links_of(page)) == ["b.md", "#one-1"]
    assert fault(tmp_path, "b.md") == "b.md: no such file"
    assert fault(tmp_path, "a.md#nowhere") == "a.md#nowhere: no such heading"
    assert anchors(page) == {"one-two-three", "one", "one-1", "x"}
    assert not fault(page, "#one-1")
    assert len(PAGES) > 20


@pytest.mark.parametrize("room", sorted(room for room in ROOMS if not room.startswith(".")))
def test_every_room_has_a_short_readme(room: str) -> None:
    """What it is for, a drawing of its flow, and where to go to change something."""
    lines = (ROOT / room / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < LINES_MAX
    assert any(line.startswith("```") for line in lines), "a drawing of its flow"
    assert any("to change" in line.lower() for line in lines)


def test_the_readme_fits_two_screens() -> None:
    """It says what, shows it, and sends readers on."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LINES_MAX
