"""What a job prints may hold orders to the terminal: they set its title, fill the clipboard, move
the cursor over other lines. Colours pass, orders do not."""

from __future__ import annotations

import codecs
import re

_STRING = r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])"
"""Begins an order that goes on to its terminator: OSC, DCS, SOS, PM, APC."""
_BODY = r"[^\x07\x1b\x9c\n\x90\x98\x9d-\x9f]*"
"""The next order ends one too: else each of many beginnings would be read to the line's end."""
_CONTROL_SEQUENCE = r"(?:\x1b\[|\x9b)"
_ORDER = re.compile(
    rf"(?P<colour>\x1b\[[0-9;:]{{0,64}}m)"
    rf"|{_STRING}{_BODY}(?:\x07|\x1b\\|\x9c|(?=[\x1b\n\x90\x98\x9d-\x9f]|\Z))"
    rf"|{_CONTROL_SEQUENCE}[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
    r"|[\udc80-\udc9f]"  # the same as lone bytes, for terminals that do not read UTF-8
)
_UNENDED_STRING = re.compile(rf"{_STRING}{_BODY}(\x1b?)\Z")
_UNENDED = re.compile(rf"(?:\x1b[ -/]{{0,8}}|{_CONTROL_SEQUENCE}[0-?]{{0,64}}[ -/]{{0,8}})\Z")
_STRING_END = re.compile(r"\x07|\x1b\\|\x9c|(?=[\x1b\n\x90\x98\x9d-\x9f])")


class LogFilter:
    """Bytes of one log in, the same without orders out. What is cut at the end of a piece waits
    for the next one. An order without an end takes no more than its line."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._rest = ""
        self._in_string = False

    def feed(self, data: bytes) -> bytes:
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        if self._in_string:
            end = _STRING_END.search(text)
            if end is None or text[end.start() :] == "\x1b":  # perhaps half of a terminator
                self._rest = "\x1b" if end else ""
                return b""
            text, self._in_string = text[end.end() :], False
        if (cut := _UNENDED_STRING.search(text)) is not None:
            text, self._rest, self._in_string = text[: cut.start()], cut[1], True
        elif (cut := _UNENDED.search(text)) is not None:
            text, self._rest = text[: cut.start()], cut[0]
        return _ORDER.sub(_colour, text).encode("utf-8", "surrogateescape")


def without_orders(text: str) -> str:
    """The same for a whole text; its lines stay."""
    return _ORDER.sub(_colour, text)


def _colour(found: re.Match[str]) -> str:
    return found["colour"] or ""
