"""Bodies that people write by hand: YAML beside JSON, where a job is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import yaml
from starlette.requests import Request

from scheduler.api.http.endpoint import read_json, refuse_encodings
from scheduler.api.http.problems import BadYaml

YAML = ("application/yaml", "application/x-yaml", "text/yaml")


class _Loader(yaml.SafeLoader):
    """Plain values. An alias stands for as much as it likes, so nine lines of them can stand for a
    billion values: there are none."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            words, mark = "aliases are not read", event.start_mark
            raise yaml.MarkedYAMLError(problem=words, problem_mark=mark)
        return super().compose_node(parent, index)


async def read_document(request: Request) -> object:
    """JSON or YAML, by its Content-Type; BadJson or BadYaml says where it breaks."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in YAML:
        return await read_json(request)
    refuse_encodings(request)
    return decode_yaml(await request.body())


def decode_yaml(raw: bytes) -> object:
    """Plain values, as JSON would have them."""
    try:
        return _plain(yaml.load(raw.decode("utf-8"), _Loader))  # noqa: S506  # a safe loader
    except UnicodeDecodeError as error:
        raise BadYaml(f"the body is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise BadYaml("the body is nested too deeply to be read") from None
    except yaml.YAMLError as error:
        raise BadYaml(f"the body is not YAML that we can read: {_where(error)}") from None


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it is not text"
    return f"{problem} at line {mark.line + 1}, column {mark.column + 1}" if mark else str(problem)


def _plain(value: object) -> object:
    """YAML knows moments, JSON does not."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
