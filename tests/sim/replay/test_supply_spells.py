"""Spells of supply: how long a zone could give so many, and how often that ended."""

import pytest

from bench.shortages import reclaimed_by_age, spells
from sim.replay.supply import Supply, make_zone

H = 3600.0
ZONE = make_zone("z", [(0.0, 3), (1 * H, 0), (2 * H, 1), (5 * H, 3)], 10 * H)


def test_spell_goes_on_where_the_series_begins_anew() -> None:
    """Three could be had from hour 5 to 10, and again from 0 to 1: one spell of six hours."""
    assert list(spells(ZONE, 3, 10 * H)) == [pytest.approx(6.0)]
    assert list(spells(ZONE, 1, 10 * H)) == [pytest.approx(9.0)]
    assert list(spells(make_zone("always", [(0.0, 3)], 10 * H), 3, 10 * H)) == []


def test_takings_are_counted_at_the_age_of_the_spell() -> None:
    rates = reclaimed_by_age(Supply("s", (ZONE,), 10 * H), [3])
    assert [taken for _, _, taken in rates] == [0, 0, 0, 0, 1, 0, 0]
    assert sum(hours for _, hours, _ in rates) == pytest.approx(6.0)
