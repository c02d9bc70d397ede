"""Trace files: read in their own formats, refused with file, line and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from core.errors import BadInput
from sim.replay.supply import UNBOUNDED, load_prices, load_supply, region_of
from sim.replay.synthetic import (
    Recipe,
    jobs_csv,
    make_jobs,
    make_supply,
    prices_csv,
    supply_csv,
)
from sim.replay.tables import BadTrace
from sim.replay.workload import load_jobs

COUNTS = """time_utc,us-east4-a,us-west1-b
2025-10-04 00:10:00,16,0
2025-10-04 00:20:00,16,3
2025-10-04 00:40:00,2,3
"""
MSR = """submit_s,cluster,job_id,duration_s,num_gpu
10,c2,b,60,8
0,c9,a,2546,1
90000,c9,c,7,1
"""
PHILLY = """submit_s,submit_time,vc,num_gpu,duration_s
0,2017-09-04 10:30:41,7f04ca,8,2240194
5,2017-09-04 10:30:46,6214e9,1,70
"""


def _file(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_counts_hold_until_the_next_line(tmp_path: Path, name: str) -> None:
    """Plain or packed; the highest count of the file means that many or more."""
    supply = load_supply(_file(tmp_path, COUNTS, name))
    east, west = supply.zones
    assert (east.name, west.name) == ("us-east4-a", "us-west1-b")
    assert (east.times, east.counts) == ((0.0, 1800.0), (UNBOUNDED, 2))
    assert (west.times, west.counts) == ((0.0, 600.0), (0, 3))
    assert supply.period_s == 1800 + 900  # the last line holds for a usual step
    assert west.count_at(599) == 0
    assert west.count_at(600) == 3


def test_exact_counts_are_limits(tmp_path: Path) -> None:
    """A user who knows the counts to be exact says so."""
    supply = load_supply(_file(tmp_path, COUNTS), exact=True)
    assert supply.zones[0].counts == (16, 2)


def test_zeros_and_ones_say_whether_not_how_many(tmp_path: Path) -> None:
    """A series of zeros and ones: up means any number."""
    text = "time,us-east-1a\n2023-02-15 22:08:16,0\n2023-02-15 22:11:31,1\n"
    assert load_supply(_file(tmp_path, text)).zones[0].counts == (0, UNBOUNDED)


@pytest.mark.parametrize(
    ("zone", "region"),
    [("us-east4-a", "us-east4"), ("us-east-1a", "us-east-1"), ("moon", "moon")],
)
def test_zones_name_their_regions(zone: str, region: str) -> None:
    """Google's and Amazon's way; another name stands for itself."""
    assert region_of(zone) == region


def test_every_zone_needs_a_price(tmp_path: Path) -> None:
    """By region or by zone; the one that has none is named."""
    supply = load_supply(_file(tmp_path, COUNTS))
    text = "region,usd_per_gpu_hour\nus-east4,1.5\n"
    prices = load_prices(_file(tmp_path, text, "prices.csv"))
    with pytest.raises(BadInput, match="us-west1-b"):
        supply.priced(prices)
    priced = supply.priced({**prices, "us-west1-b": 2.0})
    assert [zone.usd_per_hour for zone in priced.zones] == [1.5, 2.0]


def test_jobs_of_both_clusters_of_the_literature(tmp_path: Path) -> None:
    """Two formats, one meaning; jobs are put in order and told apart by whom they belong to."""
    work = load_jobs(_file(tmp_path, MSR))
    assert [job.submit_s for job in work.jobs] == [0, 10, 90000]
    nine = work.of_group("c9")
    assert [job.duration_s for job in nine.jobs] == [2546, 7]
    assert [job.duration_s for job in nine.window(1).jobs] == [2546]
    philly = load_jobs(_file(tmp_path, PHILLY, "philly.csv"))
    small = philly.one_vm_each()
    assert [job.group for job in small.jobs] == ["6214e9"]
    assert small.notes == ("1 of 2 jobs need more than 1 GPU and are left out",)
    with pytest.raises(BadInput, match="7f04ca"):
        philly.of_group("nobody")


def test_the_busiest_window_begins_where_most_jobs_come(tmp_path: Path) -> None:
    """And its first job comes at second 0."""
    rows = "\n".join(f"{second},60,1" for second in (0, 200000, 200010, 200020, 900000))
    work = load_jobs(_file(tmp_path, f"submit_s,duration_s,num_gpu\n{rows}\n"))
    assert [job.submit_s for job in work.window(1, busiest=True).jobs] == [0, 10, 20]
    assert [job.submit_s for job in work.every(2).jobs] == [0, 200010, 900000]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time_utc,a\n2025-10-04 00:10:00,many\n", "line 2, column a: got 'many'"),
        ("time_utc,a\n2025-10-04 00:10:00,-1\n", "line 2, column a: got '-1'"),
        ("time_utc,a\n2025-10-04 00:10:00,1.5\n", "a whole number"),
        ("time_utc,a\nyesterday,1\n", "column time_utc: got 'yesterday'"),
        ("time_utc,a\n2025-10-04 00:20:00,1\n2025-10-04 00:10:00,1\n", "line 3, column time_utc"),
        ("time_utc,a\n2025-10-04 00:10:00,1,2\n", "line 2: got 3 columns, expected 2"),
        ("time_utc,a,a\n2025-10-04 00:10:00,1,2\n", "line 1, column 3"),
        ("time_utc,a\n", "nothing below it"),
        ("", "line 1"),
        ("zone,event\nx,y\n", "time_utc or time"),
    ],
)
def test_what_is_wrong_with_a_supply_is_said(tmp_path: Path, text: str, words: str) -> None:
    """File, line, column, what came, what was expected."""
    path = _file(tmp_path, text)
    with pytest.raises(BadTrace) as caught:
        load_supply(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_damaged_or_missing_file_is_said(tmp_path: Path) -> None:
    """No traceback reaches a user."""
    whole = gzip.compress(MSR.encode())
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadTrace, match="damaged"):
        load_jobs(cut)
    with pytest.raises(BadTrace, match="no such file"):
        load_jobs(tmp_path / "none.csv")
    with pytest.raises(BadTrace, match="column duration_s: got 'long'"):
        load_jobs(_file(tmp_path, "submit_s,duration_s\n1,long\n"))


def test_made_up_traces_follow_from_their_seed(tmp_path: Path) -> None:
    """The same seed writes the same files, and the loaders read back what was made."""
    recipe = Recipe(seed=5, days=1)
    supply, work = make_supply(recipe), make_jobs(recipe)
    assert (supply, work) == (make_supply(recipe), make_jobs(recipe))
    assert work != make_jobs(Recipe(seed=6, days=1))
    read = load_supply(_file(tmp_path, supply_csv(supply)))
    prices = load_prices(_file(tmp_path, prices_csv(supply), "prices.csv"))
    assert [z.name for z in read.zones] == [z.name for z in supply.zones]
    assert [z.counts for z in read.zones] == [z.counts for z in supply.zones]
    assert read.priced(prices).zones[0].usd_per_hour == supply.zones[0].usd_per_hour
    assert load_jobs(_file(tmp_path, jobs_csv(work), "jobs.csv")).jobs == work.jobs
