"""The key with which commands call an API."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from cli.paths import home
from core.errors import ZenError
from core.key_form import KEY

KEY_VARIABLE = "ZEN_API_KEY"
FILE_VARIABLE = "ZEN_API_KEY_FILE"


class BadKeyFile(ZenError):
    """The file of a key cannot be used as it is."""

    code = "bad_key_file"


class NoKey(ZenError):
    """There is no key to show."""

    code = "no_key"


def key_for(address: str) -> str | None:
    """ZEN_API_KEY, else the file in ZEN_API_KEY_FILE, else the token of `zen login` at this
    address, else the owner's key of the stack that runs here. The owner's key is sent to that stack
    alone; an address with credentials has its own."""
    if urlsplit(address).username is not None:
        return None
    if key := os.environ.get(KEY_VARIABLE, "").strip():
        return _checked(key, KEY_VARIABLE)
    if not os.environ.get(FILE_VARIABLE) and (token := _signed_in(address)) is not None:
        return token
    file = file_of(address)
    return read_key(file) if file is not None else None


def file_of(address: str) -> Path | None:
    """The file of the key for an address, where it is one in a file."""
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named).expanduser()
    running = home().read()
    if running is None or not running.key_file or address not in {running.api, *running.apis}:
        return None
    return Path(running.key_file)


def _signed_in(address: str) -> str | None:
    from cli.sign_in_file import token_for

    return token_for(address)


def read_key(file: Path) -> str:
    """The key in a file; BadKeyFile says what is wrong with it."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise BadKeyFile(f"cannot read the key in {file}: {reason}") from error
    return _checked(text, str(file))


def _checked(text: str, where: str) -> str:
    if KEY.match(text) is None:
        raise BadKeyFile(f"{where} holds no API key: expected zen_<id>_<64 hexadecimal digits>")
    return text
