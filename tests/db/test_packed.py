"""What is packed is read as it was, by this release and by every later one."""

from __future__ import annotations

import zlib

import pytest

from db import packed


@pytest.mark.parametrize(
    "text", [b"", b"x", b'["pending_reason","","waits for a VM"]', b"\x00\xff" * 999]
)
def test_packed_text_is_read_as_it_was(text: bytes) -> None:
    """Whatever it says; never more than a byte longer."""
    stored = packed.pack(text)
    assert packed.unpack(stored) == text
    assert len(stored) <= len(text) + 1


def test_usual_words_take_few_bytes() -> None:
    """A name that nobody foresaw costs about its own length."""
    vm = "pipeline-zen-jobs-4xa100-40gb-us-west1-vm-56fr"
    text = f'[[0,"claimed","ASSIGNED","STARTING",1,"claimed by {vm}","{vm}","us-west1",{{}}]]'
    assert len(packed.pack(text.encode())) < len(text) / 3


def test_words_never_change() -> None:
    """Rows of all releases are unpacked with them: add others under the next number."""
    assert {number: zlib.crc32(words) for number, words in packed._WORDS.items()} == {1: 1981268358}


def test_plain_text_is_read() -> None:
    """SQL can write it, and read it."""
    assert packed.unpack(b"\x00abc") == packed.unpack(packed.plain(b"abc")) == b"abc"
