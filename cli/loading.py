"""Commands that are imported when they are called, and words that are read without pydantic.

Typer reads each value by pydantic, whose import alone takes longer than most commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from typer.core import TyperGroup
from typer.main import get_command

from cli.command_table import COMMANDS, Entry


class Loaded(MutableMapping[str, Any]):
    """The commands of the table by name; one that is looked up is imported."""

    def __init__(self, table: dict[str, Entry]) -> None:
        self.table = dict(table)
        self._found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = load(name, self.table[name])
        return self._found[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._found[name] = command

    def __delitem__(self, name: str) -> None:
        del self.table[name]

    def __contains__(self, name: object) -> bool:
        return name in self.table

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


class LazyGroup(TyperGroup):
    """`zen` itself."""

    commands: Loaded

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _read_plainly(self)
        self.commands = Loaded(COMMANDS)

    def format_commands(self, _: Any, formatter: Any) -> None:
        """From the table: no command is imported for it."""
        rows = [(name, entry.line) for name, entry in COMMANDS.items() if not entry.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class WrongValue(typer.BadParameter):
    """A value that the option cannot take; its words name the option."""

    def format_message(self) -> str:
        return self.message


def load(name: str, entry: Entry) -> Any:
    """One command, with the module that it lives in."""
    module, _, attribute = entry.where.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name, hidden=entry.hidden, context_settings=entry.settings)(found)
        found = alone
    command = get_command(found)
    _read_plainly(command)
    return command


def _read_plainly(command: Any) -> None:
    """The words of a command, and of those in it, are read here."""
    for param in command.params:
        _plain(param)
    command.get_help_option = partial(_help_option, command.get_help_option)
    for inner in getattr(command, "commands", {}).values():
        _read_plainly(inner)


def _help_option(made: Callable[[Any], Any], context: Any) -> Any:
    """Typer makes it when it is needed, and keeps it."""
    return _plain(made(context))


def _plain(param: Any) -> Any:
    if not isinstance(param.process_value, partial):
        param.process_value = partial(_value, param, param.process_value)
    return param


def _value(param: Any, by_typer: Callable[..., Any], context: Any, given: Any) -> Any:
    """What the words of one option or argument mean. What is missing is typer's to tell."""
    if param.required and param.value_is_missing(given):
        return by_typer(context, given)
    kind, many = param.type_descriptor.annotation, param.multiple or param.nargs == -1
    if given is None:
        value: Any = () if many else None
    elif many:
        [inner] = get_args(kind)
        value = [_read(param, inner, one) for one in given]
    else:
        value = _read(param, kind, given)
    return value if param.callback is None else param.callback(context, param, value)


def _read(param: Any, kind: Any, given: Any) -> Any:
    if choices := _choices(kind):
        if given in choices.values():
            return given
        if given not in choices:
            known = ", ".join(map(repr, choices))
            raise WrongValue(f"{_name(param)}: {given!r} is not one of {known}")
        return choices[given]
    if kind in (int, float) and not isinstance(given, bool):
        return _number(param, kind, given)
    assert kind in (str, bool, Path), f"{_name(param)}: no words are read as {kind}"
    return given if isinstance(given, kind) else kind(given)


def _choices(kind: Any) -> dict[str, Any]:
    """What may be said, and what it means; nothing: anything."""
    if get_origin(kind) is Literal:
        return {str(choice): choice for choice in get_args(kind)}
    members: Mapping[str, Any] = getattr(kind, "__members__", {})
    return {str(member.value): member for member in members.values()}


def _number(param: Any, kind: type[int] | type[float], given: Any) -> int | float:
    try:
        value = kind(given)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise WrongValue(f"{_name(param)}: got {given}, expected {expected}") from None
    if param.min is not None and value < param.min:
        raise WrongValue(f"{_name(param)}: got {given}, expected at least {param.min:g}")
    if param.max is not None and value > param.max:
        raise WrongValue(f"{_name(param)}: got {given}, expected at most {param.max:g}")
    return value


def _name(param: Any) -> str:
    """As it is typed."""
    return str(param.opts[0] if param.param_type_name == "option" else param.metavar)
