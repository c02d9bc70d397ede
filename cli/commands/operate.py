"""Commands for operators: config, infra, db, serve."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.client import Client, Refused, Unreachable, api_address, path
from cli.local.active_config import ConfigSource, source, unreachable_hint
from cli.options import Api, AsJson, ConfigFile, command, group
from cli.output.printing import Answer, clean, emit, note
from cli.paths import PROGRAM

if TYPE_CHECKING:
    from config.errors import ConfigError
    from config.settings import Settings
    from messaging.topics import Applied

config_app = group("The configuration: check, show, compare, history, roll back.")
infra_app = group("What must exist on Google Cloud.")
db_app = group("The database's schema.")


@config_app.command("check")
@command
def config_check(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Default: the running stack's, else what ships."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Reads the configuration and prints every fault, or a summary. Says which file it read.

    \b
    Examples:
      zen config check
      zen config check my.yaml
    """
    from config.errors import ConfigError

    found = source(file)
    try:
        settings = found.load()
    except ConfigError as error:
        if not as_json:
            if file is None:
                note(f"read {found.words}")
            raise
        emit({"ok": False, "file": found.name, "faults": faults_json(error)})
        raise typer.Exit(1) from error
    regions = {region.region for cluster in settings.clusters for region in cluster.regions}
    counts = {"clusters": len(settings.clusters), "regions": len(regions)}
    json = {"ok": True, "file": found.name, "running": found.running, **counts}
    Answer(json, _summary(found, settings, len(regions))).print(as_json)


def _summary(found: ConfigSource, settings: Settings, regions: int) -> Iterator[str]:
    yield f"read {found.words}"
    _say_if_not_in_force(found)
    groups = sum(len(cluster.regions) for cluster in settings.clusters)
    yield (
        f"ok: project {settings.project}, {len(settings.clusters)} clusters over"
        f" {regions} regions ({groups} groups), prices of {settings.prices_as_of}"
    )
    for cluster in settings.clusters:
        kind = "spot" if cluster.spot else "standard"
        yield (
            f"  {cluster.name:<14} {cluster.machine_type:<16} {kind:<9} at most"
            f" {cluster.vm_max} VMs, from ${cluster.cheapest_usd_per_hour:.2f}/h in"
            f" {', '.join(region.region for region in cluster.regions)}"
        )


def faults_json(error: ConfigError) -> list[dict[str, str]]:
    """As the API tells them."""
    return [
        {"field": f.field, "got": f.got, "expected": f.expected, "message": f.words}
        for f in error.faults
    ]


@config_app.command("show")
@command
def config_show(
    config: ConfigFile = None,
    version: Annotated[
        int | None,
        typer.Option("--version", min=1, metavar="N", help="A version that the service recorded."),
    ] = None,
    api: Api = None,
) -> Answer:
    """The settings of a file with the environment, or a recorded version. Passwords are not shown.

    Without a file: that of the running stack; without one, the file that ships.

    \b
    Examples:
      zen config show
      zen config show --json
      zen config show --version 6 > zen.yaml
    """
    if version is None:
        found = source(config)
        shown = _plain(found.load())
        note(f"read {found.words}")
        _say_if_not_in_force(found)
    else:
        with Client(api_address(api)) as client:
            shown = client.get(path("config", "versions", str(version)))["document"]
    import yaml

    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return Answer(shown, text.splitlines())


def _say_if_not_in_force(found: ConfigSource) -> None:
    """The service may have refused the newest edit, or was rolled back."""
    if not found.running:
        return
    try:
        with Client(api_address(None)) as client:
            told = client.get("/config")
    except (Unreachable, Refused):
        return  # it starts or stops at this moment: the file is all there is
    if told["file"]["path"] == found.name and told["file"]["state"] != "in force":
        version, state = told["in_force"]["version"], told["file"]["state"]
        note(f"the active version is {version}, not this file ({state}): {PROGRAM} config diff")


@infra_app.command("apply")
@command
def infra_apply(
    pubsub: Annotated[
        bool, typer.Option("--pubsub", help="Topics, subscriptions, dead letters.")
    ] = False,
    config: ConfigFile = None,
) -> Answer:
    """Makes what is missing. Running it twice changes nothing.

    Without a configuration and a bus (PUBSUB_EMULATOR_HOST): those of the running stack.

    \b
    Example:
      zen infra apply --pubsub
    """
    if not pubsub:
        raise typer.BadParameter("say what: --pubsub (for groups see zen infra gcloud)")
    found = source(config)
    note(f"read {found.words}")
    applied = asyncio.run(_apply_pubsub(found.load()))
    lines = [
        f"{item.outcome:<9} {item.kind} {item.name}" + (f" ({item.detail})" if item.detail else "")
        for item in applied
    ]
    differs = any(item.outcome == "differs" for item in applied)
    return Answer({"items": _plain(applied)}, lines, code=1 if differs else 0)


async def _apply_pubsub(settings: Settings) -> list[Applied]:
    from messaging.pubsub import PubSubBus
    from messaging.topics import apply_pubsub

    async with PubSubBus(settings.project, emulator_host=settings.pubsub_host) as bus:
        names, bound = settings.names, settings.submit_topics
        return await apply_pubsub(bus, names, settings.clusters, bound)


@infra_app.command("gcloud")
@command
def infra_gcloud(
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="C", help="Default: all of them.")
    ] = None,
    config: ConfigFile = None,
) -> Answer:
    """Prints the gcloud commands that make instance templates and groups.

    \b
    Examples:
      zen infra gcloud --cluster 1xl4
      zen infra gcloud > groups.sh
    """
    from cli.commands.gcloud import HEADER, commands

    settings = load(config)
    found = list(commands(settings, cluster))
    if settings.store_url.startswith("file:"):
        note("store_url is a directory: on real VMs logs would stay there. Set gs://bucket/prefix")
    return Answer({"commands": found}, "\n\n".join([HEADER, *found]).splitlines())


@db_app.command("upgrade")
@command
def db_upgrade(
    config: ConfigFile = None,
    owner_key: Annotated[
        Path | None,
        typer.Option(
            "--owner-key",
            metavar="FILE",
            help="Makes the key in FILE an owner's; a new one if there is no such file.",
        ),
    ] = None,
) -> Answer:
    """Brings the database to the newest schema; safe to repeat.

    The owner's key is the first one: with it all other keys are created (zen keys create).

    \b
    Examples:
      DATABASE_URL=postgresql://zen@db/zen zen db upgrade
      DATABASE_URL=postgresql://zen@db/zen zen db upgrade --owner-key owner.key
    """
    from db.migrate import current, upgrade

    with _database(config) as url:
        upgrade(url)
        revision = current(url)
        if owner_key is not None:
            import asyncio

            from scheduler.access.owner_key import store_owner_key

            asyncio.run(store_owner_key(url, owner_key))
            note(f"the key in {owner_key} is an owner's: it opens everything")
    return Answer({"revision": revision}, [f"the database is at {revision}"])


@db_app.command("current")
@command
def db_current(config: ConfigFile = None) -> Answer:
    """The schema the database is at: of the running stack, unless another one is named.

    \b
    Example:
      zen db current
    """
    from db.migrate import current

    with _database(config) as url:
        revision = current(url)
    words = f"the database is at {revision}" if revision else "the database has no schema yet"
    return Answer({"revision": revision}, [words])


@db_app.command("roles")
@command
def db_roles(config: ConfigFile = None) -> Answer:
    """Makes the roles zen_leader and zen_api, with their rights; safe to repeat.

    `zen db upgrade` does so too. Exit code 1 if the login may not make roles: somebody who may
    runs this once. Where the service has a login of its own, grant it both roles.

    \b
    Example:
      DATABASE_URL=postgresql://zen@db/zen zen db roles
    """
    from db.migrate import apply_roles_now
    from db.roles import ROLES

    with _database(config) as url:
        missing = apply_roles_now(url)
    made = [role for role in ROLES if role not in missing]
    lines = [f"{role}: as it must be" for role in made]
    lines += [f"{role}: missing, and this login may not make it" for role in missing]
    return Answer({"roles": made, "missing": missing}, lines, code=1 if missing else 0)


@contextmanager
def _database(config: str | None) -> Iterator[str]:
    """Its address; when nothing answers there, what to do."""
    from core.errors import StoreDown

    found = source(config)
    try:
        yield found.load().database_url
    except StoreDown as error:
        hint = unreachable_hint(found, "database", "DATABASE_URL")
        raise StoreDown(f"{clean(error)}; {hint}") from error


@command
def serve(config: ConfigFile = None) -> None:
    """Runs one scheduler in the foreground, on the configuration's database and bus.

    \b
    Example:
      DATABASE_URL=postgresql://zen@db/zen zen serve --config /etc/zen/zen.yaml
    """
    if config:
        os.environ["ZEN_CONFIG"] = str(Path(config).absolute())
    os.execv(sys.executable, [sys.executable, "-m", "scheduler"])  # noqa: S606  # we become it


def load(file: str | None) -> Settings:
    """The settings of a file (default: ZEN_CONFIG, then the one that ships) and the environment."""
    from config.load import load_settings

    named = file or os.environ.get("ZEN_CONFIG")
    return load_settings(Path(named) if named else None, os.environ)


def _plain(value: Any) -> Any:
    """Values of dataclasses as JSON knows them; what may hold a password is covered."""
    from dataclasses import fields, is_dataclass
    from enum import Enum

    if is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _plain(getattr(value, f.name)) if f.repr else "(hidden)" for f in fields(value)
        }
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    plain = isinstance(value, str | int | float | bool | None) and not isinstance(value, Enum)
    return value if plain else str(value)
