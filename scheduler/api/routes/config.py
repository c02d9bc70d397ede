"""The configuration in force: show, compare, history, roll back. The file is edited elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.requests import Request

from core.access import Right
from core.configuration import ConfigVersion
from core.errors import BadInput, Fault, StoreDown
from core.submission import shown
from scheduler.access.authenticator import NotAllowed
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import Body, Endpoint, Routes, read_object, route
from scheduler.api.http.params import Param, Query
from scheduler.api.http.problems import FaultOut
from scheduler.api.routes.jobs import PAGE_SIZE
from scheduler.api.shapes import Time, shaped
from scheduler.operations.live_config import FileReport, LiveConfig

WORDS_MAX = 200
VERSION_MAX = 2**31 - 1


class ConfigFileOut(Struct, frozen=True):
    """The file of the replica that answers, beside what is in force."""

    path: str
    state: str
    faults: tuple[FaultOut, ...]
    diff: tuple[str, ...]


class ConfigVersionOut(Struct, frozen=True):
    """One version, without its document."""

    version: int
    at: Time
    author: str
    source: str
    digest: str
    diff: tuple[str, ...]
    rollback_of: int | None


class WholeConfigOut(ConfigVersionOut, frozen=True):
    """One version whole."""

    document: Mapping[str, Any]


class ConfigOut(Struct, frozen=True):
    """What is in force, and what the file says."""

    in_force: WholeConfigOut
    file: ConfigFileOut
    needs_restart: tuple[FaultOut, ...]


class ConfigVersionsOut(Struct, frozen=True):
    """A page of versions, newest first."""

    versions: tuple[ConfigVersionOut, ...]
    total: int
    next_before: int | None


class CheckedOut(Struct, frozen=True):
    """What a document would change, and why it would be refused."""

    ok: bool
    in_force: int
    diff: tuple[str, ...]
    faults: tuple[FaultOut, ...]


class RolledOut(Struct, frozen=True):
    """What became of a rollback."""

    version: int
    changed: bool
    diff: tuple[str, ...]
    message: str
    file: ConfigFileOut


BEFORE = Param("before", "whole", "Only versions before this one.", low=1, high=VERSION_MAX)
_CHECK_BODY = Body(
    schema={
        "type": "object",
        "required": ["document"],
        "properties": {"document": {"type": "object"}, "source": {"type": "string"}},
    },
    examples="configuration",
)
_ROLLBACK_BODY = Body(
    schema={
        "type": "object",
        "required": ["version"],
        "properties": {"version": {"type": "integer"}, "by": {"type": "string"}},
    },
    examples="rollback",
)


class ConfigRoutes(Routes):
    """The configuration; nothing is served where it cannot change."""

    tag = "configuration"

    @property
    def _live(self) -> LiveConfig:
        assert self._services.config is not None, "served only where it can change"
        return self._services.config

    def endpoints(self) -> list[Endpoint]:
        return super().endpoints() if self._services.config is not None else []

    @route("GET /api/v1/config", Right.CONFIG_READ, "Whole, without secrets.")
    async def get(self) -> ConfigOut:
        """The configuration in force, and what this replica's file says."""
        live, version = self._live, in_force(self._live)
        return ConfigOut(
            shaped(WholeConfigOut, version), file_out(live.report), faults_out(live.restart)
        )

    @route(
        "GET /api/v1/config/versions",
        Right.CONFIG_READ,
        "A page of them.",
        params=(PAGE_SIZE, BEFORE),
    )
    async def versions(self, query: Query) -> ConfigVersionsOut:
        """Every configuration that was in force, newest first."""
        page = await self._live.versions.history(
            query.whole("page_size"), query.whole_or_none("before")
        )
        rows = tuple(shaped(ConfigVersionOut, row) for row in page.rows)
        return ConfigVersionsOut(rows, page.total, page.next_before)

    @route(
        "GET /api/v1/config/versions/{version}", Right.CONFIG_READ, "The version.", errors=(404,)
    )
    async def version(self, request: Request) -> WholeConfigOut:
        """One version whole."""
        raw = str(request.path_params["version"])
        if not (raw.isascii() and raw.isdigit() and len(raw) < 10):
            raise BadInput([Fault("version", shown(raw), "the number of a version")])
        return shaped(WholeConfigOut, await self._live.versions.version(int(raw)))

    @route("POST /api/v1/config/check", Right.CONFIG_READ, "Changes and faults.", body=_CHECK_BODY)
    async def check(self, request: Request) -> CheckedOut:
        """What a document would change; nothing is changed."""
        data = await read_object(request, ("document", "source"))
        document = data.get("document")
        if not isinstance(document, dict):
            raise BadInput([Fault("document", shown(document), "an object: a configuration")])
        source = _words(data, "source", "the document")
        known = in_force(self._live)
        found = await self._live.judge(document, source)
        faults = faults_out(found.faults)
        return CheckedOut(not faults, known.version, found.diff, faults)

    @route(
        "POST /api/v1/config/rollback",
        Right.CONFIG_WRITE,
        "The version that is active now.",
        body=_ROLLBACK_BODY,
        errors=(404,),
    )
    async def rollback(self, request: Request, caller: ApiCaller) -> RolledOut:
        """Make a new version that says what an old one said."""
        data = await read_object(request, ("version", "by"))
        number = data.get("version")
        if not isinstance(number, int) or number is True or not 1 <= number <= VERSION_MAX:
            raise BadInput([Fault("version", shown(number), "the number of a version")])
        _words(data, "by", "nobody")  # older clients say who they are: their key says it better
        await self._check_access(number, caller)
        done = await self._live.rollback(number, caller.principal.label, caller.actor)
        words = f"version {done.version.version} is active, with the content of version {number}"
        if not done.changed:
            words = f"version {done.version.version} has that content already; nothing was changed"
        diff = done.version.diff if done.changed else ()
        file = file_out(self._live.report)
        return RolledOut(done.version.version, done.changed, diff, words, file)

    async def _check_access(self, number: int, caller: ApiCaller) -> None:
        """NotAllowed: the old version gives roles that the active one does not, and the caller may
        give none."""
        if caller.may(Right.GRANTS):
            return
        old = await self._live.versions.version(number)
        if old.document.get("access", {}) != in_force(self._live).document.get("access", {}):
            raise NotAllowed(
                f"version {number} has another section access: who rolls back to it needs the "
                f"right {Right.GRANTS}, too (role admin)"
            )


def in_force(live: LiveConfig) -> ConfigVersion:
    """StoreDown before the first answer of the database."""
    if live.version is None:
        raise StoreDown("the configuration in force is not known yet: the database did not answer")
    return live.version


def file_out(report: FileReport) -> ConfigFileOut:
    return ConfigFileOut(report.path, str(report.standing), faults_out(report.faults), report.diff)


def faults_out(faults: Sequence[Fault]) -> tuple[FaultOut, ...]:
    return tuple(map(FaultOut.of, faults))


def _words(data: Mapping[str, object], name: str, default: str) -> str:
    value = data.get(name, default)
    if not isinstance(value, str) or not 0 < len(value) <= WORDS_MAX or not value.isprintable():
        expected = f"1 to {WORDS_MAX} printable characters"
        raise BadInput([Fault(name, shown(value), expected)])
    return value
