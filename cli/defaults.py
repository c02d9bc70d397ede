"""The tenant, the user and the cluster of a submission that names none.

An option or a file of the submission wins over the environment, that over `zen defaults set`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cli.paths import settings_directory
from core.errors import ZenError

FIELDS: Mapping[str, str] = {"tenant": "tenant_id", "user": "user_id", "cluster": "cluster"}
"""Name of the default → the field of a submission."""


class BadDefaults(ZenError):
    """The file of the defaults cannot be used."""

    code = "bad_defaults"


class Default(NamedTuple):
    """A value, and who says so."""

    value: str
    source: str


def variable(name: str) -> str:
    """The variable of the environment. A job's own ZEN_TENANT and ZEN_CLUSTER are other things."""
    return f"ZEN_DEFAULT_{name.upper()}"


def defaults_file() -> Path:
    return settings_directory() / "defaults.json"


def read_defaults() -> dict[str, Default]:
    """The defaults in force, by name."""
    file = defaults_file()
    found = {name: Default(value, str(file)) for name, value in kept_defaults().items()}
    for name in FIELDS:
        if said := os.environ.get(variable(name), "").strip():
            found[name] = Default(said, variable(name))
    return found


def kept_defaults() -> dict[str, str]:
    """What the file says. BadDefaults if it cannot be read."""
    file = defaults_file()
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no JSON"
        raise BadDefaults(f"cannot read {file}: {reason}; mend it or delete it") from error
    if not isinstance(found, dict) or not all(isinstance(word, str) for word in found.values()):
        raise BadDefaults(f"{file}: expected an object of words; mend it or delete it")
    return {name: found[name] for name in FIELDS if found.get(name)}


def keep_defaults(values: Mapping[str, str]) -> None:
    """Replaces the file in one step."""
    file = defaults_file()
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_text(json.dumps(dict(values), indent=2) + "\n", encoding="utf-8")
        fresh.replace(file)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise BadDefaults(f"cannot write {file}: {error.strerror}") from error


def with_defaults(body: Mapping[str, Any]) -> dict[str, Any]:
    """The submission with the defaults for what it does not say. One that asks for a GPU type, or
    for a number of GPUs, gets no default cluster: the two would contradict each other."""
    found = {FIELDS[name]: default.value for name, default in read_defaults().items()}
    if {"gpu_type", "gpu_types", "gpu_count"} & set(body):
        found.pop("cluster", None)
    return {**found, **body}
