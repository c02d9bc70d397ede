"""Bodies that people write by hand: YAML beside JSON, where a job is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import yaml
from starlette.requests import Request

from scheduler.api.http.endpoint import read_json, refuse_encodings
from scheduler.api.http.problems import BadYaml, TooBusy, TooLarge

YAML = ("application/yaml", "application/x-yaml", "text/yaml")
BYTES_MAX = 64 * 1024
NODES_MAX = 5_000
DEPTH_MAX = 100
_BITS_MAX = 64
_WAITING_MAX = 32
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's is ten times as fast, where it is compiled in."""


class _Parser:
    """Parses off the event loop, one document at a time: several threads would take the
    interpreter from the loop more often than one does."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "yaml")
        self._waiting = 0

    async def parse(self, raw: bytes) -> object:
        if self._waiting >= _WAITING_MAX:
            raise TooBusy("too many YAML bodies are waiting to be read; send JSON, or try again")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, decode_yaml, raw)
        finally:
            self._waiting -= 1


_parser = _Parser()


async def read_document(request: Request) -> object:
    """JSON or YAML, by its Content-Type; BadJson or BadYaml says where it breaks."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in YAML:
        return await read_json(request)
    refuse_encodings(request)
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > BYTES_MAX:
            raise TooLarge(f"a YAML body has at most {BYTES_MAX} bytes; JSON may have more")
    return await _parser.parse(raw)


def decode_yaml(raw: bytes) -> object:
    """Plain values, as JSON would have them."""
    try:
        text = raw.decode("utf-8")
        _refuse_costly(text)
        return _plain(yaml.load(text, _LOADER))  # noqa: S506  # a safe loader
    except UnicodeDecodeError as error:
        raise BadYaml(f"the body is not UTF-8: {error.reason}") from None
    except yaml.YAMLError as error:
        raise BadYaml(f"the body is not YAML that we can read: {_where(error)}") from None
    except (ValueError, OverflowError, LookupError, AttributeError) as error:
        raise BadYaml(f"the body has a value that we cannot read: {error}") from None


def _refuse_costly(text: str) -> None:
    """A few bytes can cost a lot: an alias stands for as much as it likes, so nine lines of them
    can stand for a billion values, and readers call themselves for each level."""
    nodes = depth = 0
    for event in yaml.parse(text, _LOADER):
        nodes += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.AliasEvent):
            words = "aliases are not read"
        elif depth > DEPTH_MAX:
            raise BadYaml("the body is nested too deeply to be read")
        elif nodes > NODES_MAX:
            words = f"there are more than {NODES_MAX} values"
        else:
            continue
        raise yaml.MarkedYAMLError(problem=words, problem_mark=event.start_mark)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it is not text"
    return f"{problem} at line {mark.line + 1}, column {mark.column + 1}" if mark else str(problem)


def _plain(value: object) -> object:
    """YAML knows moments and endless numbers, JSON as we read it does not."""
    if isinstance(value, int) and value.bit_length() > _BITS_MAX:
        raise ValueError(f"a whole number of {value.bit_length()} bits, at most {_BITS_MAX}")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
