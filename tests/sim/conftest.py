"""Fixtures of the pretend cloud's tests."""

import pytest

from tests.sim.helpers import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
