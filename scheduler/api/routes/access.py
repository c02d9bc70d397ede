"""Keys, the audit log, and who the caller is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from starlette.requests import Request

from core.access import ALL_TENANTS, Right, Scope
from core.access_store import KnownKey, NewSecret
from core.api_keys import ApiKey, key_text, parse_key
from core.audit_anchors import AuditAnchor
from core.audit_log import AuditAction, AuditEntry, AuditRow
from core.audit_store import AuditFilter
from core.errors import BadInput, Fault, NotFound
from core.field_kinds import published
from core.names import JOB_ID
from core.submission import shown
from scheduler.access.authenticator import NotAllowed
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import Body, Routes, read_object, route
from scheduler.api.http.params import Param, Query
from scheduler.api.routes.grants import ROLE, TENANT, object_schema, read_grant
from scheduler.api.shapes import iso, iso_or_none
from scheduler.operations.audit_check import verify_audit_log

NAME_CHARS_MAX = 128
EXPIRES_MAX_S = 10 * 366 * 86_400.0
_TEXT = {"type": "string"}
_EXPIRES = {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": EXPIRES_MAX_S}
_KEY_FIELDS: Mapping[str, object] = {
    "name": {**_TEXT, "maxLength": NAME_CHARS_MAX},
    "user_id": {**_TEXT, "pattern": published(JOB_ID)},
    "tenant_id": {**TENANT, "default": "default"},
    "role": {**ROLE, "default": "member"},
    "scopes": {"type": "array", "items": {"enum": sorted(Scope)}},
    "expires_in_s": _EXPIRES,
}


class RightOut(msgspec.Struct, frozen=True):
    """A right of the caller."""

    right: str
    meaning: str
    tenants: tuple[str, ...]
    """`*`: every one."""


class WhoOut(msgspec.Struct, frozen=True):
    """Who the API takes the caller for."""

    principal: str
    name: str
    user_id: str
    scopes: tuple[str, ...]
    rights: tuple[RightOut, ...]


class RoleOut(msgspec.Struct, frozen=True):
    """A role for a tenant."""

    tenant_id: str
    role: str


class KeyOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key without its secret."""

    key_id: str
    name: str
    user_id: str
    created_at: str
    created_by: str
    scopes: tuple[str, ...]
    roles: tuple[RoleOut, ...]
    expires_at: str | None = None
    revoked_at: str | None = None
    last_used_at: str | None = None


class NewKeyOut(KeyOut, frozen=True, omit_defaults=True, kw_only=True):
    """A key with its secret, which is shown this once."""

    key: str


class KeysOut(msgspec.Struct, frozen=True):
    """A page of keys."""

    keys: tuple[KeyOut, ...]
    next_page_token: str | None


class AuditRowOut(msgspec.Struct, frozen=True):
    """One change of state by a principal."""

    seq: int
    at: str
    principal: str
    user_id: str
    address: str
    request_id: str
    action: str
    target: str
    tenant_id: str
    outcome: str
    detail: Mapping[str, str]
    link: int | None
    """Its place in the chain; None: not linked yet."""
    hash: str | None


class AuditOut(msgspec.Struct, frozen=True):
    """A page of the audit log, newest first."""

    rows: tuple[AuditRowOut, ...]
    next_before: int | None


class AuditFaultOut(msgspec.Struct, frozen=True):
    """A place where the chain is broken."""

    seq: int | None
    message: str


class AuditVerdictOut(msgspec.Struct, frozen=True):
    """What a check of the whole chain found."""

    good: bool
    rows: int
    head: str | None
    """The hash of the last link: compare it with one that you kept elsewhere."""
    faults: tuple[AuditFaultOut, ...]
    unlinked: str
    anchors: int = 0
    """Heads that were compared."""


class AccessRoutes(Routes):
    """Keys and the audit log."""

    tag = "access"

    @route("GET /api/v1/whoami", Right.FLEET_READ, "The caller.")
    async def whoami(self, caller: ApiCaller) -> WhoOut:
        """Who the API takes you for, and what you may do."""
        who = caller.principal
        rights = tuple(
            RightOut(str(right), right.meaning, tuple(tenants.only or (ALL_TENANTS,)))
            for right, tenants in sorted(who.allowed.items())
        )
        return WhoOut(who.name, who.label, who.user_id, tuple(sorted(who.scopes)), rights)

    @route(
        "GET /api/v1/keys",
        Right.KEYS,
        "A page of keys.",
        params=(
            Param("page_size", "whole", "Rows per page.", 100, 1, 500),
            Param("page_token", "text", "`next_page_token` of the page before."),
        ),
    )
    async def keys(self, query: Query) -> KeysOut:
        """All keys, without their secrets."""
        size = query.whole("page_size")
        rows = await self._services.access.store.keys(size + 1, query.text("page_token"))
        shown_rows = rows[:size]
        token = shown_rows[-1].key.key_id if len(rows) > size else None
        return KeysOut(tuple(KeyOut(**_key(row)) for row in shown_rows), token)

    @route(
        "POST /api/v1/keys",
        Right.KEYS,
        {201: "The key; its secret is never shown again."},
        body=Body(object_schema(_KEY_FIELDS, "name"), "new key"),
    )
    async def create(self, request: Request, caller: ApiCaller) -> NewKeyOut:
        """Create a key with one role; needs the right to give roles too."""
        _check_may_grant(caller)
        data = await read_object(request, tuple(_KEY_FIELDS))
        faults: list[Fault] = []
        name = _word(data, "name", faults)
        now = self._services.clock.now()
        key_id, secret = self._services.ids.api_key()
        text = key_text(key_id, secret)
        parsed = parse_key(text)
        assert parsed is not None
        key = ApiKey(
            key_id=key_id,
            hash=parsed[1],
            name=name,
            user_id=_user(data, name, faults),
            created_at=now,
            created_by=caller.principal.name,
            expires_at=_expiry(data, now, faults),
            scopes=_scopes(data, faults),
        )
        grant = read_grant({"principal": key.principal, **_role(data)}, faults, self._roles)
        if faults:
            raise BadInput(faults)
        detail = {"name": name, "role": grant.role, "scopes": " ".join(sorted(key.scopes))}
        audited = self._entry(
            caller, AuditAction.KEY_CREATE, f"key/{key_id}", grant.tenant_id, detail
        )
        await self._services.access.store.add_key(key, [grant], audited)
        return NewKeyOut(**_key(KnownKey(key, (grant,))), key=text)

    @route(
        "POST /api/v1/keys/{key_id}/rotate",
        Right.KEYS,
        "The key with its new secret.",
        body=Body(object_schema({"expires_in_s": _EXPIRES}), "rotated key", required=False),
        errors=(404, 409),
    )
    async def rotate(self, request: Request, caller: ApiCaller) -> NewKeyOut:
        """Give a key a new secret; the old one opens nothing any more. Without `expires_in_s` the
        key expires when it would have."""
        _check_may_grant(caller)
        data = await read_object(request, ("expires_in_s",), optional=True)
        faults: list[Fault] = []
        chosen = _expiry(data, self._services.clock.now(), faults)
        if faults:
            raise BadInput(faults)
        known = await self._known(request)
        expires_at = chosen or known.key.expires_at
        text = key_text(known.key.key_id, self._services.ids.api_key()[1])
        parsed = parse_key(text)
        assert parsed is not None
        target = f"key/{known.key.key_id}"
        audited = self._entry(caller, AuditAction.KEY_ROTATE, target, "", {})
        store = self._services.access.store
        key = await store.rotate_key(NewSecret(known.key.key_id, parsed[1], expires_at), audited)
        return NewKeyOut(**_key(KnownKey(key, known.grants)), key=text)

    @route("DELETE /api/v1/keys/{key_id}", Right.KEYS, "It is revoked.", errors=(404,))
    async def revoke(self, request: Request, caller: ApiCaller) -> KeyOut:
        """Revoke a key, for good, on every replica within 5 seconds."""
        known = await self._known(request)
        target, now = f"key/{known.key.key_id}", self._services.clock.now()
        audited = self._entry(caller, AuditAction.KEY_REVOKE, target, "", {})
        key = await self._services.access.store.revoke_key(known.key.key_id, now, audited)
        return KeyOut(**_key(KnownKey(key, known.grants)))

    @route(
        "GET /api/v1/audit",
        Right.AUDIT_READ,
        "A page of the log.",
        params=(
            Param("principal", "text", "Only of this principal."),
            Param("action", "text", "Only this action.", words=tuple(AuditAction)),
            Param("target", "text", "Only of this target, e.g. job/default/0/mnist."),
            Param("page_size", "whole", "Rows per page.", 100, 1, 1000),
            Param("before", "whole", "`next_before` of the page before.", None, 1, 2**62),
        ),
    )
    async def audit(self, query: Query, caller: ApiCaller) -> AuditOut:
        """Who changed what, newest first."""
        where = AuditFilter(
            query.text("principal"), query.text("action"), query.text("target"), caller.tenants
        )
        size = query.whole("page_size")
        log = self._services.access.audit_log
        rows = await log.rows(where, size + 1, query.whole_or_none("before"))
        told = tuple(_audit_row(row) for row in rows[:size])
        return AuditOut(told, told[-1].seq if len(rows) > size else None)

    @route(
        "GET /api/v1/audit/verify",
        Right.AUDIT_READ,
        "What was found.",
        params=(Param("anchors", "flag", "Also with the heads at `audit.anchor_url`.", False),),
    )
    async def verify(self, query: Query) -> AuditVerdictOut:
        """Check the whole chain: rows that were changed, dropped or swapped are named."""
        access = self._services.access
        anchors: Sequence[AuditAnchor] = ()
        if query.flag("anchors"):
            if access.anchors is None:
                expected = "audit.anchor_url in the configuration: the head is anchored nowhere"
                raise BadInput([Fault("anchors", "true", expected)])
            anchors = await access.anchors.read()
        found = await verify_audit_log(access.audit_log, anchors)
        return AuditVerdictOut(
            good=not found.faults,
            rows=found.rows,
            head=found.head.hash.hex() if found.head else None,
            faults=tuple(AuditFaultOut(fault.seq, fault.words) for fault in found.faults),
            unlinked=found.unlinked.words if found.unlinked else "",
            anchors=found.anchors,
        )

    @property
    def _roles(self) -> Collection[str]:
        return self._services.settings.current.access.roles.keys()

    async def _known(self, request: Request) -> KnownKey:
        key_id = str(request.path_params["key_id"])
        known = await self._services.access.store.key(key_id)
        if known is None:
            raise NotFound(f"there is no key {key_id[:80]}")
        return known

    def _entry(
        self,
        caller: ApiCaller,
        action: AuditAction,
        target: str,
        tenant_id: str,
        detail: Mapping[str, str],
    ) -> AuditEntry:
        now = self._services.clock.now()
        return AuditEntry(now, caller.actor, action, target, tenant_id, detail=detail)


def _check_may_grant(caller: ApiCaller) -> None:
    """Who makes a key that may do anything, or takes over the secret of one, has all its roles."""
    if not caller.may(Right.GRANTS):
        raise NotAllowed(
            f"keys are made by callers who may {Right.GRANTS.meaning} ({Right.GRANTS})"
        )


def _key(known: KnownKey) -> dict[str, Any]:
    key = known.key
    return {
        "key_id": key.key_id,
        "name": key.name,
        "user_id": key.user_id,
        "created_at": iso(key.created_at),
        "created_by": key.created_by,
        "scopes": tuple(sorted(key.scopes)),
        "roles": tuple(RoleOut(grant.tenant_id, grant.role) for grant in known.grants),
        "expires_at": iso_or_none(key.expires_at),
        "revoked_at": iso_or_none(key.revoked_at),
        "last_used_at": iso_or_none(key.last_used_at),
    }


def _audit_row(row: AuditRow) -> AuditRowOut:
    entry, actor = row.entry, row.entry.actor
    return AuditRowOut(
        seq=row.seq,
        at=iso(entry.at),
        principal=actor.principal,
        user_id=actor.user_id,
        address=actor.address,
        request_id=actor.request_id,
        action=entry.action,
        target=entry.target,
        tenant_id=entry.tenant_id,
        outcome=entry.outcome,
        detail=entry.detail,
        link=row.link.number if row.link else None,
        hash=row.link.hash.hex() if row.link else None,
    )


def _word(data: Mapping[str, object], field: str, faults: list[Fault]) -> str:
    given = data.get(field)
    if isinstance(given, str) and given.isprintable() and 0 < len(given) <= NAME_CHARS_MAX:
        return given
    expected = f"1 to {NAME_CHARS_MAX} printable characters"
    faults.append(Fault(field, shown(given), expected))
    return ""


def _user(data: Mapping[str, object], name: str, faults: list[Fault]) -> str:
    given = data.get("user_id", name)
    if isinstance(given, str) and JOB_ID.match(given):
        return given
    expected = "an id of letters, digits, . _ and - (without user_id the name must be one)"
    faults.append(Fault("user_id", shown(given), expected))
    return ""


def _expiry(data: Mapping[str, object], now: datetime, faults: list[Fault]) -> datetime | None:
    given = data.get("expires_in_s")
    if given is None:
        return None
    if (
        isinstance(given, int | float)
        and not isinstance(given, bool)
        and 0 < given <= EXPIRES_MAX_S
    ):
        return now + timedelta(seconds=given)
    expected = f"seconds, at most {EXPIRES_MAX_S:g}"
    faults.append(Fault("expires_in_s", shown(given), expected))
    return None


def _scopes(data: Mapping[str, object], faults: list[Fault]) -> frozenset[Scope]:
    given = data.get("scopes", [])
    if isinstance(given, list) and all(word in list(Scope) for word in given):
        return frozenset(map(Scope, given))
    faults.append(Fault("scopes", shown(given), f"a list of {', '.join(sorted(Scope))}"))
    return frozenset()


def _role(data: Mapping[str, object]) -> dict[str, object]:
    return {"tenant_id": data.get("tenant_id", "default"), "role": data.get("role", "member")}
