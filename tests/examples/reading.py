"""Every example that people can copy: from the documents, from `--help`, from examples/.

A fenced block says in its info string what CI does with it:

    ```sh run                  run against `zen up` with the shipped configuration; all end well
    ```console run             the same, and what is printed is compared
    ```console run varies      the same, without comparing
    ```yaml run                a part of a configuration, or a job: checked as the product does
    ```sh rehearse             commands for Google Cloud, run against the pretend cloud
    ```sh show: REASON         not run

Lines of `--help` and of the comments in examples/ are run, unless tests/examples/marks.py says
otherwise.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.main import get_command

from cli.main import app

ROOT = Path(__file__).parents[2]
FIRST = (ROOT / "README.md", ROOT / "docs" / "user" / "first-job.md")
"""As a newcomer reads: what these print is that of a stack that nobody has used yet."""
DOCUMENTS = (
    *FIRST,
    *sorted({*(ROOT / "docs").rglob("*.md")} - {*FIRST}),
    *sorted((ROOT / "bench" / "results").glob("*.md")),
    *sorted(path for path in ROOT.glob("[a-z]*/README.md") if path.parent.name != "docs"),
)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
_MARK = re.compile(r"(?P<mark>run|rehearse)(?P<varies> varies)?\Z|show: (?P<reason>\S.+)\Z")
_COMMENT = re.compile(r"\s+# .*$")
_INLINE = re.compile(r"`((?:\./)?(?:zen|tgpu|gpu-cli) [^`]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a document."""

    document: str
    line: int
    language: str
    mark: str
    """run, rehearse or show; empty if the info string says none of them."""
    varies: bool
    reason: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.document}:{self.line}"


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a block, and what the document says it prints."""

    command: str
    output: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of `--help` or of an example's comment."""

    where: str
    command: str


def blocks() -> list[Block]:
    """Of all documents, in order."""
    return [block for path in DOCUMENTS for block in blocks_of(path)]


def blocks_of(path: Path) -> Iterator[Block]:
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        fence = _FENCE.match(line)
        if not fence:
            continue
        indent, body = len(fence["indent"]), []
        for _, inner in lines:
            if _FENCE.match(inner) and not inner.strip().strip("`"):
                break
            body.append(inner[indent:])
        yield _block(name, number, fence["info"], "\n".join(body))


def _block(document: str, line: int, info: str, text: str) -> Block:
    language, _, rest = info.partition(" ")
    found = _MARK.match(rest.strip())
    mark = "" if not found else found["mark"] or "show"
    varies, reason = bool(found and found["varies"]), (found and found["reason"]) or ""
    return Block(document, line, language, mark, varies, reason, text)


def steps(block: Block) -> list[Step]:
    """The commands of a block: behind `$ ` in a console, all lines of a script."""
    lines = block.text.splitlines()
    if block.language != "console":
        return [Step(command) for command in _joined(lines)]
    found: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif found and found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        elif found:
            found[-1][1].append(line)
    return [Step("\n".join(words), tuple(_trimmed(said))) for words, said in found]


def _trimmed(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def _joined(lines: list[str]) -> Iterator[str]:
    """Commands over several lines belong together: a backslash, or quotes that are still open."""
    open_lines: list[str] = []
    for line in lines:
        if not open_lines and (not line.strip() or line.lstrip().startswith("#")):
            continue
        open_lines.append(line)
        text = "\n".join(open_lines)
        if line.endswith("\\") or _is_open(text):
            continue
        yield text if len(open_lines) > 1 else _COMMENT.sub("", text)
        open_lines = []
    if open_lines:
        yield "\n".join(open_lines)


def _is_open(text: str) -> bool:
    """Whether a quote is not closed yet; those in comments do not count."""
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def help_lines() -> list[Line]:
    """The examples of every command, deepest names last."""
    return list(_help_of(get_command(app), ("zen",)))


def _help_of(command: Any, path: tuple[str, ...]) -> Iterator[Line]:
    for line in _examples(command.help or ""):
        yield Line(f"{' '.join(path)} --help", line)
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from _help_of(inner, (*path, name))


def _examples(text: str) -> Iterator[str]:
    _, heading, rest = text.partition("Example")
    if heading:
        lines = (line.strip() for line in rest.splitlines()[1:])
        yield from (line for line in lines if line)


def comment_lines() -> list[Line]:
    """Commands in the comments of examples/."""
    return [
        Line(f"examples/{path.name}", found[1].strip())
        for path in sorted((ROOT / "examples").iterdir())
        for line in path.read_text(encoding="utf-8").splitlines()
        if (found := re.match(r"#\s{2,}((?:\./)?zen .+)$", line))
    ]


def inline_commands() -> list[Line]:
    """Commands within sentences and tables."""
    found = []
    for path in DOCUMENTS:
        text = re.sub(r"(?ms)^ *```.*?^ *```$", "", path.read_text(encoding="utf-8"))
        name = path.relative_to(ROOT).as_posix()
        found += [Line(name, command) for command in _INLINE.findall(text)]
    return found
