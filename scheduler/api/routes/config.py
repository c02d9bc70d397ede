"""The configuration in force: show, compare, history, roll back. The file is edited elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from core.configuration import ConfigVersion
from core.errors import BadInput, Fault, StoreDown
from core.submission import shown, unknown
from scheduler.api.http.endpoint import PREFIX, Body, Endpoint, ResponseDoc, read_json, reply
from scheduler.api.http.params import Param, Query
from scheduler.api.http.problems import FaultOut
from scheduler.api.routes.jobs import PAGE_SIZE
from scheduler.api.services import Services
from scheduler.api.shapes import Time, iso
from scheduler.operations.live_config import FileReport, LiveConfig
from scheduler.submission.unstorable import refuse_unstorable

TAG = "configuration"
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


class ConfigRoutes:
    """The handlers."""

    def __init__(self, live: LiveConfig) -> None:
        self._live = live

    async def get(self, _: Request, __: Query) -> Response:
        live = self._live
        version = in_force(live)
        return reply(ConfigOut(whole_out(version), file_out(live.report), faults_out(live.restart)))

    async def versions(self, _: Request, query: Query) -> Response:
        page = await self._live.versions.history(
            query.whole("page_size"), query.whole_or_none("before")
        )
        rows = tuple(version_out(row) for row in page.rows)
        return reply(ConfigVersionsOut(rows, page.total, page.next_before))

    async def version(self, request: Request, _: Query) -> Response:
        raw = str(request.path_params["version"])
        if not (raw.isascii() and raw.isdigit() and len(raw) < 10):
            raise BadInput([Fault("version", shown(raw), "the number of a version")])
        return reply(whole_out(await self._live.versions.version(int(raw))))

    async def check(self, request: Request, _: Query) -> Response:
        data = await _object(request, "document", "source")
        document = data.get("document")
        if not isinstance(document, dict):
            raise BadInput([Fault("document", shown(document), "an object: a configuration")])
        source = _words(data, "source", "the document")
        known = in_force(self._live)
        found = await self._live.judge(document, source)
        faults = faults_out(found.faults)
        return reply(CheckedOut(not faults, known.version, found.diff, faults))

    async def rollback(self, request: Request, _: Query) -> Response:
        data = await _object(request, "version", "by")
        number = data.get("version")
        if isinstance(number, bool) or not isinstance(number, int) or not _is_number(number):
            raise BadInput([Fault("version", shown(number), "the number of a version")])
        done = await self._live.rollback(number, _words(data, "by", "somebody"))
        words = f"version {done.version.version} is active, with the content of version {number}"
        if not done.changed:
            words = f"version {done.version.version} has that content already; nothing was changed"
        diff = done.version.diff if done.changed else ()
        file = file_out(self._live.report)
        return reply(RolledOut(done.version.version, done.changed, diff, words, file))


def in_force(live: LiveConfig) -> ConfigVersion:
    """StoreDown before the first answer of the database."""
    if live.version is None:
        raise StoreDown("the configuration in force is not known yet: the database did not answer")
    return live.version


def version_out(row: ConfigVersion) -> ConfigVersionOut:
    return ConfigVersionOut(**_members(row))


def whole_out(row: ConfigVersion) -> WholeConfigOut:
    return WholeConfigOut(**_members(row), document=row.document)


def _members(row: ConfigVersion) -> dict[str, Any]:
    members = {name: getattr(row, name) for name in ConfigVersionOut.__struct_fields__}
    return {**members, "at": iso(row.at)}


def file_out(report: FileReport) -> ConfigFileOut:
    return ConfigFileOut(report.path, str(report.standing), faults_out(report.faults), report.diff)


def faults_out(faults: Sequence[Fault]) -> tuple[FaultOut, ...]:
    return tuple(FaultOut(fault.field, fault.got, fault.expected, fault.words) for fault in faults)


def _is_number(value: int) -> bool:
    return 1 <= value <= VERSION_MAX


async def _object(request: Request, *known: str) -> Mapping[str, object]:
    data = await read_json(request)
    refuse_unstorable(data)
    if not isinstance(data, dict):
        raise BadInput([Fault("body", shown(data), "an object")])
    strangers = [unknown("field", str(key), known) for key in data if key not in known]
    if strangers:
        raise BadInput(strangers)
    return data


def _words(data: Mapping[str, object], name: str, default: str) -> str:
    value = data.get(name, default)
    if not isinstance(value, str) or not 0 < len(value) <= WORDS_MAX or not value.isprintable():
        expected = f"1 to {WORDS_MAX} printable characters"
        raise BadInput([Fault(name, shown(value), expected)])
    return value


_EXAMPLE_FILE = {"path": "/etc/zen/zen.yaml", "state": "in force", "faults": [], "diff": []}
_EXAMPLE = {
    "version": 7,
    "at": "2026-01-31T12:00:00.000Z",
    "author": "scheduler-1",
    "source": "/etc/zen/zen.yaml",
    "digest": "3dee02ce",
    "diff": ["clusters.2xa100-40gb.vm_max: 4 → 6", "+ clusters.2xa100-40gb.regions.us-west4"],
    "rollback_of": None,
}
_EXAMPLE_WHOLE = {**_EXAMPLE, "document": {"clusters": {"2xa100-40gb": {"vm_max": 6}}}}
_EXAMPLE_CONFIG = {"in_force": _EXAMPLE_WHOLE, "file": _EXAMPLE_FILE, "needs_restart": []}
_EXAMPLE_CHECKED = {
    "ok": False,
    "in_force": 7,
    "diff": ["- clusters.1xl4"],
    "faults": [
        {
            "field": "zen.yaml: clusters.1xl4",
            "got": "nothing, but it has 3 jobs that have not ended",
            "expected": "the cluster with `drain: true` until its jobs have ended",
        }
    ],
}
_EXAMPLE_ROLLED = {
    "version": 8,
    "changed": True,
    "diff": ["clusters.2xa100-40gb.vm_max: 6 → 4"],
    "message": "version 8 is active, with the content of version 6",
    "file": {**_EXAMPLE_FILE, "state": "differs", "diff": ["clusters.2xa100-40gb.vm_max: 4 → 6"]},
}
_CHECK_BODY = Body(
    schema={
        "type": "object",
        "required": ["document"],
        "properties": {"document": {"type": "object"}, "source": {"type": "string"}},
    },
    examples={"a limit": {"document": {"clusters": {"1xl4": {"vm_max": 2}}}, "source": "my.yaml"}},
)
_ROLLBACK_BODY = Body(
    schema={
        "type": "object",
        "required": ["version"],
        "properties": {"version": {"type": "integer"}, "by": {"type": "string"}},
    },
    examples={"back": {"version": 6, "by": "ada"}},
)


def endpoints(services: Services) -> list[Endpoint]:
    """What this file serves; nothing where the configuration cannot change."""
    if services.config is None:
        return []
    on = ConfigRoutes(services.config)
    here, versions = f"{PREFIX}/config", f"{PREFIX}/config/versions"
    before = Param("before", "whole", "Only versions before this one.", low=1, high=VERSION_MAX)
    return [
        Endpoint(
            method="GET",
            path=here,
            summary="The configuration in force, and what this replica's file says",
            tag=TAG,
            handle=on.get,
            answers={200: ResponseDoc("Whole, without secrets.", ConfigOut, _EXAMPLE_CONFIG)},
            errors=(422, 503),
        ),
        Endpoint(
            method="GET",
            path=versions,
            summary="Every configuration that was in force, newest first",
            tag=TAG,
            handle=on.versions,
            answers={
                200: ResponseDoc(
                    "A page of them.",
                    ConfigVersionsOut,
                    {"versions": [_EXAMPLE], "total": 7, "next_before": 7},
                )
            },
            params=(PAGE_SIZE, before),
            errors=(422, 503),
        ),
        Endpoint(
            method="GET",
            path=f"{versions}/{{version}}",
            summary="One version whole",
            tag=TAG,
            handle=on.version,
            answers={200: ResponseDoc("The version.", WholeConfigOut, _EXAMPLE_WHOLE)},
            errors=(404, 422, 503),
        ),
        Endpoint(
            method="POST",
            path=f"{here}/check",
            summary="What a document would change; nothing is changed",
            tag=TAG,
            handle=on.check,
            answers={200: ResponseDoc("Changes and faults.", CheckedOut, _EXAMPLE_CHECKED)},
            body=_CHECK_BODY,
            errors=(400, 413, 415, 422, 503),
        ),
        Endpoint(
            method="POST",
            path=f"{here}/rollback",
            summary="Make a new version that says what an old one said",
            tag=TAG,
            handle=on.rollback,
            answers={
                200: ResponseDoc("The version that is active now.", RolledOut, _EXAMPLE_ROLLED)
            },
            body=_ROLLBACK_BODY,
            errors=(400, 404, 413, 415, 422, 503),
        ),
    ]
