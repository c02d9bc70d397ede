"""No table of the command line cuts what it shows, however narrow the terminal is."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live

from cli import aliases
from cli.commands import capacity, cost, dead_letters, fleet, jobs, show, tenants
from cli.output.durations import clock_time
from cli.output.printing import PIPE_WIDTH, console, fitted, pipe_width
from cli.output.tables import Fitted
from cli.paths import ROOT

NOW = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)
HEADINGS = ("JOB", "USD", "GPU-H", "NAME", "ZONE", "MESSAGE")
# What a table may leave out on a narrow terminal: nothing here adds up, is what a row is called
# by, or says what is wrong.
DROPPABLE = frozenset(
    (
        *("PROGRESS", "NAME", "RUN", "VM", "ETA", "PRICE/H", "TARGET", "KIND", "HEARD", "AGE"),
        *("ZONE", "WASTE", "MAX CLASS", "WEIGHT", "DELIVERY", "BOOT", "RECLAIMS/H", "AGO", "LAST"),
        *("SENT AGAIN", "BODY", "ATTEMPT", "REGION", "GPUS", "PRICE", "ASSIGNED"),
        *("TENANT", "PRIORITY"),
    )
)

ids = st.text("abcdefghij-0123456789", min_size=1, max_size=90).filter(lambda text: text != "-")
amounts = st.integers(0, 10**9).map(lambda cents: f"${cents / 100:.2f}")
sentences = st.lists(ids, max_size=30).map(" ".join)
rows = st.tuples(ids, amounts, amounts, ids, ids, sentences)
widths = st.integers(1, 300)


def _printed(table: Fitted, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, soft_wrap=True, markup=False, highlight=False).print(table)
    return out.getvalue()


def _made(found: Sequence[Sequence[object]], height: int | None = None) -> Fitted:
    return fitted(
        HEADINGS, found, right="USD GPU-H", drop="ZONE NAME", below="MESSAGE", height=height
    )


@given(st.lists(rows, min_size=1, max_size=5), widths)
def test_nothing_that_must_stay_is_ever_cut(found: list[tuple[str, ...]], width: int) -> None:
    """At every width each id and each amount stands whole in one line, and each word of a message
    is there, in order."""
    text = _printed(_made(found), width)
    words = text.split()
    for job, usd, hours, _, _, message in found:
        for cell in (job, usd, hours, *message.split()):
            assert cell in words
    told = " ".join(words)
    assert all(" ".join(row[5].split()) in told for row in found)


@given(st.lists(rows, min_size=1, max_size=5), widths)
def test_a_droppable_column_is_whole_or_absent(found: list[tuple[str, ...]], width: int) -> None:
    """A column that is named droppable is left out as a whole, heading and all; it is not cut."""
    words = _printed(_made(found), width).split()
    for name, index in (("NAME", 3), ("ZONE", 4)):
        if name in words:
            assert all(row[index] in words for row in found)


@given(st.lists(rows, min_size=1, max_size=5), st.integers(30, 300))
def test_lines_fit_unless_one_word_does_not(found: list[tuple[str, ...]], width: int) -> None:
    """A line is wider than the terminal only because of one word that is too long for it."""
    longest = max(len(cell) for row in found for part in row for cell in part.split() or [""])
    bound = max(width, longest + len("MESSAGE ") + len("    "))
    assert all(len(line) <= bound for line in _printed(_made(found), width).splitlines())


@given(st.lists(rows, min_size=1, max_size=5), st.integers(10, 120))
def test_a_live_screen_cuts_nothing_at_the_right(found: list[tuple[str, ...]], width: int) -> None:
    """A screen that is drawn again cuts long lines, so that the table breaks them before."""
    out = io.StringIO()
    screen = Console(file=out, width=width, height=5000, soft_wrap=True, force_terminal=True)
    with Live(_made(found, height=4000), console=screen, auto_refresh=False):
        pass
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s", "", out.getvalue())
    for job, usd, _, _, _, message in found:
        assert job in seen
        assert usd in seen
        assert re.sub(r"\s", "", message) in seen


def test_a_screen_that_is_too_low_counts_what_it_leaves_out() -> None:
    """With a height whole rows are left out, their number is told, and the totals stay."""
    found = [(f"j-{n}", "$1", "1", "", "", "a message " * 20) for n in range(10)]
    table = fitted(HEADINGS, found, below="MESSAGE", height=12, foot=["10 jobs: 10 running"])
    lines = _printed(table, 80).splitlines()
    assert len(lines) <= 12
    assert lines[-1] == "10 jobs: 10 running"
    shown = sum(line.startswith("j-") for line in lines)
    assert f"… {10 - shown} more" in lines
    assert 1 <= shown < 10


def test_empty_columns_are_the_first_to_go() -> None:
    """A column without a value in any row is left out when room is scarce: nothing is lost."""
    headings = ("TENANT", "USD", "USEFUL", "PREEMPTED", "LOST")
    table = fitted(headings, [("vision", "$1.00", "$0.75", "", None)], right=headings[1:])
    assert _printed(table, 25).split() == [*headings[:3], "vision", "$1.00", "$0.75"]
    assert _printed(table, 80).split()[:5] == list(headings)


def test_a_row_that_does_not_fit_becomes_a_block() -> None:
    """Too many columns that must stay: each row is a block of headings and values."""
    headings = ("TENANT", "USD", "USEFUL", "BOOT", "NOTE")
    table = fitted(headings, [("vision", "$1.00", "$0.75", "", "two words")], right="USD")
    assert _printed(table, 30).splitlines() == [
        "TENANT vision",
        "    USD $1.00  USEFUL $0.75",
        "    NOTE two words",
    ]


def test_a_column_that_is_not_there_cannot_be_named() -> None:
    """A droppable column with a typing error would never be dropped: it is refused."""
    with pytest.raises(AssertionError, match="MAXCLASS"):
        fitted(("TENANT", "MAX CLASS"), [], drop="MAXCLASS")


def _amount() -> dict[str, object]:
    kinds = dict.fromkeys(("boot", "idle", "hedge", "preempted", "lost"), 1234.5678)
    return {
        "usd": 12345.678,
        "useful_usd": 11111.111,
        "kinds": kinds,
        "waste_share": 0.1,
        "vm_hours": 1234.56,
        "gpu_hours": 9876.54,
    }


def test_cost_keeps_every_amount_at_80_columns() -> None:
    """What adds up to the bill is all there: no dollar and no hour is left out for its width."""
    found = {"by": "tenant", "rows": [{"key": "vision", "amount": _amount()}], "total": _amount()}
    text = _printed(cost.cost_table(found), 80)
    assert text.count("$1234.57") == 10
    for amount in ("$12345.68", "$11111.11", "1234.56", "9876.54"):
        assert text.count(amount) == 2
    assert max(map(len, text.splitlines())) <= 80


def test_no_table_may_drop_an_id_a_message_or_a_sum() -> None:
    """The columns that the tables of the command line leave out on narrow terminals are exactly
    columns that somebody has judged to be dispensable."""
    found = (
        jobs.jobs_table({"jobs": []}, NOW),
        fleet.clusters_table([], NOW),
        fleet._vms_table([], NOW),
        fleet.alerts_table([], NOW),
        cost.cost_table({"by": "tenant", "rows": [], "total": _amount()}),
        cost.cost_table({"by": "kind", "rows": [], "total": _amount()}),
        tenants.tenants_table([]),
        capacity.capacity_table([], NOW),
        dead_letters._dead_letters_table([], NOW),
        show._events_table([], NOW, str),
        show._members_table([], NOW, str),
        show._attempts_table([], NOW),
        show._waits_table([], NOW),
        aliases._table([]),
    )
    for table in found:
        assert set(table.drop) <= DROPPABLE
        assert table.headings[0] not in table.drop


def _dropped(call: ast.Call, module: ast.Module) -> list[str]:
    """The columns that a call of fitted() names droppable."""
    given = next((word.value for word in call.keywords if word.arg == "drop"), None)
    if isinstance(given, ast.Name):  # a constant of the module
        name = given.id
        given = next(
            line.value
            for line in module.body
            if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == name
        )
    told = "" if given is None else ast.literal_eval(given)
    return told.split() if isinstance(told, str) else list(told)


def test_every_table_is_made_by_one_owner() -> None:
    """Whatever command makes a table, it drops only columns that somebody has judged to be
    dispensable, and no file but cli/output/tables.py lays tables out."""
    found = 0
    for path in sorted((ROOT / "cli").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "rich.table" not in text, path
        module = ast.parse(text)
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "fitted":
                found += 1
                assert set(_dropped(call, module)) <= DROPPABLE, f"{path}:{call.lineno}"
    assert found > 20


def test_alerts_show_their_message_at_80_columns() -> None:
    """An alert's message and id are whole on a narrow terminal."""
    message = "QUOTA_EXCEEDED for NVIDIA_A100_GPUS in us-central1: ask Google for more " * 3
    alert = {
        "id": 4711,
        "severity": "error",
        "kind": "quota",
        "subject": "8xa100-80gb/us-central1",
        "raised_at": "2026-11-17T12:00:00Z",
        "count": 3,
        "cleared_at": None,
        "message": message.strip(),
    }
    text = _printed(fleet.alerts_table([alert], NOW), 80)
    assert message.strip() in " ".join(text.split())
    assert "4711" in text
    assert max(map(len, text.splitlines())) <= 80


def test_times_of_other_days_have_their_date() -> None:
    """A time of today is a time of day; any other one begins with its date."""
    today = clock_time("2026-11-18T11:59:58.25Z", NOW)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.2", today)
    older = clock_time("2026-11-15T12:00:00Z", NOW)
    assert re.fullmatch(r"2026-11-1\d \d\d:\d\d:\d\d", older)
    assert clock_time("", NOW) == "-"


def test_columns_of_the_environment_count_when_piped() -> None:
    """COLUMNS sets the width of output that goes to a file; nonsense does not."""
    assert pipe_width({"COLUMNS": "80"}) == 80
    assert pipe_width({}) == pipe_width({"COLUMNS": "wide"}) == pipe_width({"COLUMNS": "0"})
    assert pipe_width({}) == PIPE_WIDTH
    assert console().soft_wrap
