"""Orders to the terminal are taken out of what jobs print."""

from __future__ import annotations

import itertools
import re

import pytest

from cli.output.terminal import LogFilter, without_orders

CASES = [
    (b"plain \xc3\xa9 \xe8\xaa\x9e\ttab\r\n", b"plain \xc3\xa9 \xe8\xaa\x9e\ttab\r\n"),
    (b"\x1b[1;31mred\x1b[0m \x1b[38:5:1mx\x1b[m", b"\x1b[1;31mred\x1b[0m \x1b[38:5:1mx\x1b[m"),
    (b"a\x1b]52;c;cm0gLXJmIH4=\x07b", b"ab"),
    (b"a\x1b]0;owned\x1b\\b", b"ab"),
    (b"a\xc2\x9d0;owned\xc2\x9cb", b"ab"),
    (b"a\x1bP1$r0m\x1b\\b\x1b_x\x1b\\c\x1b^y\x1b\\d\x1bXz\x1b\\e", b"abcde"),
    (b"a\x1b[2J\x1b[H\x1b[1A\x1b[?1049h\xc2\x9b5nb", b"ab"),
    (b"a\x1b[>4;2mb\x1b[1 mc", b"abc"),
    (b"a\x1bcb\x1b(0c\x1b#8d\x1b=e", b"abcde"),
    (b"a\x07\x08\x0b\x0c\x0e\x0f\x7f\x00b", b"ab"),
    (b"a\xc2\x85\xc2\x84b", b"ab"),
    (b"a\x9b2Jb\xff", b"a2Jb\xff"),
    (b"a\x1b]0;no end\nnext", b"a\nnext"),
    (b"a\x1b]0;x\x1b[31mred", b"a\x1b[31mred"),
    (b"a\x1b\x1b[2Jb", b"ab"),
    (b"a\xc2\x9d\xc2\x90x\xc2\x9d" * 9 + b"\nb", b"a\nb"),
    (b"a\x1b[31", b"a"),
    (b"a\x1b", b"a"),
]


@pytest.mark.parametrize(("sent", "shown"), CASES)
def test_orders_go_colours_stay(sent: bytes, shown: bytes) -> None:
    """Whole, and however it is cut into pieces."""
    assert LogFilter().feed(sent) == shown
    for size in (1, 2, 3, 5):
        pieces = LogFilter()
        cut = ["".join(map(chr, part)).encode("latin-1") for part in batched(sent, size)]
        assert b"".join(map(pieces.feed, cut)) == shown


def batched(data: bytes, size: int) -> list[bytes]:
    rest = iter(data)
    return list(iter(lambda: bytes(itertools.islice(rest, size)), b""))


def test_no_text_leaves_an_escape_that_is_no_colour() -> None:
    """All short texts over the characters that matter, in one piece and in two."""
    for letters in itertools.product("\x1b[]mJ\\\x07\n1;", repeat=5):
        text = "".join(letters)
        filtered = LogFilter()
        parts = filtered.feed(text[:2].encode()) + filtered.feed(text[2:].encode())
        for shown in (without_orders(text), parts.decode()):
            for after in shown.split("\x1b")[1:]:
                assert re.match(r"\[[1;]*m", after), (text, shown)
            assert "\x07" not in shown


def test_endless_orders_are_not_kept() -> None:
    """A string order over many pieces is dropped as it comes."""
    filtered = LogFilter()
    assert filtered.feed(b"a\x1b]52;c;") == b"a"
    for _ in range(1000):
        assert filtered.feed(b"x" * 1000) == b""
    assert not filtered._rest
    assert filtered.feed(b"\x1b") + filtered.feed(b"\\b") == b"b"
