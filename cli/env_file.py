"""Files of environment variables, as dotenv writes them."""

from __future__ import annotations

import re
from pathlib import Path

from core.errors import ZenError

FILE_BYTES_MAX = 256 * 1024
_LINE = re.compile(
    r"""
    \s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*
    (?:'(?P<raw>[^']*)'|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s'"#].*?|))
    (?:\s+\#.*|\s*)\Z
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class BadEnvFile(ZenError):
    """The file cannot be used; its words name the line, never what stands in it."""

    code = "bad_env_file"


def read_env_file(file: Path) -> dict[str, str]:
    """NAME=VALUE lines: empty lines and comments (#) are skipped, `export` is allowed; values may
    stand in quotes. Nothing is substituted."""
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(FILE_BYTES_MAX + 1)
    except UnicodeDecodeError:
        raise BadEnvFile(f"{file}: not UTF-8 text") from None
    if len(text) > FILE_BYTES_MAX:
        raise BadEnvFile(f"{file}: more than {FILE_BYTES_MAX} characters")
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = _LINE.match(line)
        if parts is None:
            raise BadEnvFile(f"{file}, line {number}: expected NAME=VALUE, quotes closed")
        found[parts["name"]] = _value(parts)
    return found


def _value(parts: re.Match[str]) -> str:
    if parts["quoted"] is not None:
        return _ESCAPE.sub(lambda one: _ESCAPED.get(one[1], one[1]), parts["quoted"])
    return parts["raw"] if parts["raw"] is not None else parts["plain"].rstrip()
