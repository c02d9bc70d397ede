"""Reading trace files: CSV, plain or gzip. What is wrong is said with file, line and column."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, cast

from core.errors import ZenError

LINES_MAX = 5_000_000


class BadTrace(ZenError):
    """The file must be mended, or is another one; the message says where."""

    code = "bad_trace"


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a table, which knows where it stands."""

    path: Path
    line: int
    places: Mapping[str, int]
    cells: Sequence[str]

    def cell(self, column: str) -> str:
        return self.cells[self.places[column]]

    def text(self, column: str) -> str:
        found = self.cell(column).strip()
        if not found:
            raise self.bad(column, "a value")
        return found

    def number(self, column: str, *, least: float = -math.inf) -> float:
        try:
            value = float(self.cell(column))
        except ValueError:
            raise self.bad(column, "a number") from None
        if not math.isfinite(value) or value < least:
            least_words = f" of at least {least:g}" if math.isfinite(least) else ""
            raise self.bad(column, f"a number{least_words}")
        return value

    def whole(self, column: str, *, least: int = 0) -> int:
        value = self.number(column, least=least)
        if value != int(value):
            raise self.bad(column, "a whole number")
        return int(value)

    def moment(self, column: str) -> datetime:
        try:
            value = datetime.fromisoformat(self.cell(column).strip())
        except ValueError:
            raise self.bad(column, "a time such as 2025-10-04 00:10:00") from None
        return value if value.tzinfo else value.replace(tzinfo=UTC)

    def bad(self, column: str, expected: str) -> BadTrace:
        where = f"{self.path}, line {self.line}, column {column}"
        return BadTrace(f"{where}: got {self.cell(column)!r}, expected {expected}")


@dataclass(frozen=True, slots=True)
class Table:
    """A whole file: its header and its lines."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]

    def has(self, *columns: str) -> bool:
        return set(columns) <= set(self.columns)


def read_table(path: Path) -> Table:
    """The file as rows of text; a BadTrace for what is no table."""
    try:
        with _lines(path) as lines:
            return _parse(path, csv.reader(lines))
    except FileNotFoundError:
        raise BadTrace(f"{path}: there is no such file") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadTrace(f"{path}: a damaged gzip file ({error})") from None
    except UnicodeDecodeError:
        raise BadTrace(f"{path}: neither text in UTF-8 nor gzip of it") from None
    except csv.Error as error:
        raise BadTrace(f"{path}: not a table of comma-separated values ({error})") from None
    except OSError as error:
        raise BadTrace(f"{path}: {error.strerror or error}") from None


def _lines(path: Path) -> TextIO:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return cast("TextIO", gzip.open(path, "rt", encoding="utf-8", newline=""))
    return path.open(encoding="utf-8", newline="")


def _parse(path: Path, lines: Iterator[Sequence[str]]) -> Table:
    header = next(lines, None)
    if not header or len(header) < 2:
        raise BadTrace(f"{path}, line 1: expected a header with the names of at least two columns")
    columns = tuple(name.strip() for name in header)
    for index, name in enumerate(columns):
        if not name or name in columns[:index]:
            raise BadTrace(f"{path}, line 1, column {index + 1}: got {name!r}, expected a new name")
    places = {name: index for index, name in enumerate(columns)}
    rows: list[TableRow] = []
    for number, cells in enumerate(lines, start=2):
        if not cells:
            continue
        if len(cells) != len(columns):
            raise BadTrace(
                f"{path}, line {number}: got {len(cells)} columns, expected {len(columns)}"
            )
        if number > LINES_MAX:
            raise BadTrace(f"{path}: more than {LINES_MAX:,} lines")
        rows.append(TableRow(path, number, places, cells))
    if not rows:
        raise BadTrace(f"{path}: a header and nothing below it")
    return Table(path, columns, tuple(rows))
