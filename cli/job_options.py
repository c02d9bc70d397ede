"""Options that the table of job fields makes: for `zen submit`, and as filters of `zen jobs`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import timedelta
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import typer

from cli.options import Given, option, pairs
from cli.output.durations import is_span, moment, seconds
from core.clock import SystemClock
from core.field_options import Option, Said
from core.job_fields import FIELDS, FILTERS, JobField, types

_SPAN_UNIT_S = {Said.SECONDS: 1, Said.MINUTES: 60}
SUBMITTED = tuple(field for field in FIELDS.values() if field.option is not None)


def submit_options() -> list[inspect.Parameter]:
    return [_option(field, field.option) for field in SUBMITTED if field.option is not None]


def filter_options() -> list[inspect.Parameter]:
    made = []
    for field in FILTERS:
        flags = field.option.flags if field.option else "--" + field.name.replace("_", "-")
        metavar = field.option.metavar if field.option else None
        made.append(_option(field, Option(flags, metavar, field.only)))
    return made


def _option(field: JobField, said: Option) -> inspect.Parameter:
    shape, default = _shape(field, said), False if said.said is Said.YES else None
    told = typer.Option(*said.flags.split(), metavar=said.metavar, help=said.help)
    return option(field.name, Annotated[shape, told], default)


def _shape(field: JobField, option: Option) -> Any:
    """The type that typer reads the words as."""
    if option.said is Said.YES:
        return bool
    if option.said is Said.GIGABYTES:
        return float | None
    if option.said is not Said.PLAIN:
        return str | None
    kind = types()[field.attribute]
    inner = [one for one in get_args(kind) if one is not NoneType]
    if get_origin(kind) in (tuple, Mapping):
        return list[str] | None
    return (inner[0] if NoneType in get_args(kind) else kind) | None


def body_of(given: Given, body: Mapping[str, Any]) -> dict[str, Any]:
    """The submission: what was given wins over the same fields of `body`; mappings are merged."""
    made = dict(body)
    for field in SUBMITTED:
        option, value = field.option, given[field.name]
        if option is None or value in (None, []) or (value is False and option.said is Said.YES):
            continue
        read = _read(option, value, mapping=get_origin(types()[field.attribute]) is Mapping)
        if isinstance(read, dict) and option.said is Said.PLAIN:
            present = made.get(field.name)
            read = {**(present if isinstance(present, dict) else {}), **read}
        made[field.name] = read
    return made


def _read(option: Option, value: Any, *, mapping: bool) -> Any:
    """What the option means."""
    flag = option.flag
    match option.said:
        case Said.GIGABYTES:
            return round(value * 1024)
        case Said.SECONDS | Said.MINUTES:
            return seconds(value, flag) / _SPAN_UNIT_S[option.said]
        case Said.MOMENT:
            return _moment(value, flag)
        case Said.NAMED:
            return int(value) if value.isdecimal() else value
        case Said.REPLICAS:
            return parse_replicas(value)
        case _:
            return pairs(value, flag) if mapping else value


def _moment(text: str, flag: str) -> str:
    """A moment as it was written, or from now on: 12h."""
    if moment(text) is not None:
        return text
    if not (is_span(text) or text.strip().isdecimal()):
        expected = "12h, or a moment with its offset such as 2030-09-01T18:00Z"
        raise typer.BadParameter(f"{flag}: got {text!r}, expected {expected}")
    at = SystemClock().now() + timedelta(seconds=seconds(text, flag))
    return at.isoformat(timespec="seconds")


def parse_replicas(text: str) -> object:
    """4, or 2-8: an elastic job."""
    least, dash, most = text.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise typer.BadParameter(
            f"{text!r} is neither a number of VMs nor a range of it, such as 4 or 2-8",
            param_hint="--replicas",
        )
    return {"min": int(least), "max": int(most)} if dash else int(least)
