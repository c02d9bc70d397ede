"""Every example says what CI does with it, and every command in a sentence exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cli.main import app
from tests.examples.reading import (
    ROOT,
    Block,
    Line,
    blocks,
    blocks_of,
    inline_commands,
    steps,
)

RUNNABLE = {"sh", "console", "yaml", "json"}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.where)
def test_every_block_has_a_mark(block: Block) -> None:
    """run, rehearse, or show with a reason; only languages that can be run are."""
    assert block.mark, (
        f"{block.where}: say what CI does with it, as tests/examples/reading.py has it"
    )
    if block.mark != "show":
        assert block.language in RUNNABLE, f"{block.where}: {block.language} cannot be run"


def test_blocks_and_their_commands_are_read(tmp_path: Path) -> None:
    """Indented fences, continued lines, open quotes, prompts and what they print."""
    path = tmp_path / "x.md"
    path.write_text(
        "1. words\n\n   ```sh run\n   zen a \\\n     b\n   # a comment\n"
        "\n   zen c 'd\n   e'\n   ```\n"
        "```sh run\nzen a # somebody's\nzen b # words\n```\n"
        "```console run varies\n$ zen x\none\n\ntwo\n\n$ zen y\n```\n"
        "```text show: a drawing\n-->\n```\n```yaml\na: 1\n```\n"
    )
    script, remarks, console, drawing, unmarked = blocks_of(path)
    assert [step.command for step in steps(remarks)] == ["zen a", "zen b"]
    assert [step.command for step in steps(script)] == ["zen a \\\n  b", "zen c 'd\ne'"]
    assert [(s.command, s.output) for s in steps(console)] == [
        ("zen x", ("one", "", "two")),
        ("zen y", ()),
    ]
    assert (console.mark, console.varies) == ("run", True)
    assert (drawing.mark, drawing.reason) == ("show", "a drawing")
    assert unmarked.mark == ""


def alternatives(command: str) -> list[str]:
    r"""`zen a b|c` is two commands; brackets are options; `\|` is how tables write a bar."""
    text = re.sub(r"[\[\]]", "", command.replace("\\|", "|"))
    words = text.split()
    bar = next((n for n, word in enumerate(words) if "|" in word), None)
    if bar is None or bar > 2:  # a bar further on is part of an argument
        return [text]
    return [" ".join([*words[:bar], one, *words[bar + 1 :]]) for one in words[bar].split("|")]


def unknown_in(command: str) -> str:
    """The first word of a command line that names no command or option of ours; else empty."""
    words = shlex.split(command.replace("…", "x"), comments=True)
    here: Any = get_command(app)
    for word in words[1:]:
        if word == "--":
            return ""
        if word.startswith("-"):
            flags = {flag for p in here.params for flag in (*p.opts, *p.secondary_opts)}
            if word.partition("=")[0] not in flags | {"--help", "-h"}:
                return word
        elif hasattr(here, "commands"):
            if word not in here.commands:
                return word
            here = here.commands[word]
    return ""


@pytest.mark.parametrize("line", inline_commands(), ids=lambda line: f"{line.where} {line.command}")
def test_commands_in_sentences_exist(line: Line) -> None:
    """Of `zen` itself; the words of other command lines are tried by their own tests."""
    if not line.command.removeprefix("./").startswith("zen "):
        return
    for command in alternatives(line.command):
        assert not unknown_in(command), f"{line.where}: {command}: no {unknown_in(command)!r}"


def test_unknown_words_are_found() -> None:
    """Or the test above could not fail."""
    assert unknown_in("zen frobnicate") == "frobnicate"
    assert unknown_in("zen jobs --wacth") == "--wacth"
    assert unknown_in("zen config chek") == "chek"
    assert unknown_in("zen submit --gpus 1 -- python3 --no-such-option") == ""
    assert alternatives("zen config check\\|diff") == ["zen config check", "zen config diff"]


def test_the_documents_are_found() -> None:
    """An empty list would pass everything."""
    assert len(blocks()) > 20
    assert (ROOT / "README.md").exists()
