"""A job prints orders to the terminal of the person who reads its log."""

from __future__ import annotations

import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

HOSTILE = r"a\033]52;c;cm0gLXJmIH4=\007b\033]0;owned\033\\c\033[2J\007\033[31mred\033[0m\302\2332J"


def test_orders_do_not_reach_the_terminal(up: Stack) -> None:
    """Neither from a log, whole, followed or of an array, nor from a name; colours do. --raw
    prints what there is."""
    job = up.submit("printf", HOSTILE)
    up.wait(job, "SUCCEEDED")
    for words in (("logs", job), ("logs", "-f", job), ("logs", "--tail", "5", job)):
        shown = up.zen(*words).stdout
        assert shown.endswith("abc\x1b[31mred\x1b[0m"), words
    json = up.zen("logs", "--json", job).stdout
    assert not any(order in json for order in ("\x1b", "\x07", "\x9b"))
    assert "\x1b]52;c;" in up.zen("logs", "--raw", job).stdout
    refused = up.zen("show", "no-\x1b]0;owned\x07-job", check=False)
    assert "\x1b" not in refused.stdout + refused.stderr
