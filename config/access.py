"""The section `access` of the checked document: issuers, roles and grants, with their relations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.document import Document, KeyPath
from core.access import ALL_TENANTS, ROLES, Grant, Right
from core.access_rules import AccessRules, OidcIssuer
from core.names import JOB_ID
from core.submission import shown, unknown

_GRANT_KEYS = ("tenant", "role")


def build_access(document: Document, given: Mapping[str, Any]) -> AccessRules:
    """What is wrong is noted in the document and left out."""
    usual, google = AccessRules(), given.get("google", {})
    roles = {**ROLES, **_roles(document, given.get("roles", {}))}
    grants = {
        f"{kind}:{name.lower() if kind == 'user' else name}": _grants(
            document, ("access", f"{kind}s", name), items, roles
        )
        for kind in ("user", "group")
        for name, items in given.get(f"{kind}s", {}).items()
    }
    issuers = _issuers(document, given.get("issuers", {}))
    named = AccessRules(issuers=issuers)
    for name in given.get("groups", {}):
        if expected := named.unclear(f"group:{name}"):
            document.fault(("access", "groups", name), shown(name), expected)
    return AccessRules(
        issuers=issuers,
        google_audiences=tuple(google.get("audiences", ())),
        google_email_domains=tuple(google.get("email_domains", ())),
        iap_audience=given.get("iap_audience"),
        grants={
            principal: tuple(Grant(principal, tenant, role) for tenant, role in pairs)
            for principal, pairs in grants.items()
        },
        roles=roles,
        session_idle_s=given.get("session_idle_s", usual.session_idle_s),
        session_max_s=given.get("session_max_s", usual.session_max_s),
    )


def _roles(document: Document, given: Mapping[str, Any]) -> dict[str, frozenset[Right]]:
    found = {}
    for name, words in given.items():
        path: KeyPath = ("access", "roles", name)
        if name in ROLES:
            document.fault(path, f"the role {name} again", "a name that no built-in role has")
            continue
        rights = set()
        for word in words:
            if word in set(Right):
                rights.add(Right(word))
            else:
                allowed = ", ".join(sorted(Right))
                document.fault(path, f"the right {shown(word)}", f"rights among: {allowed}")
        found[name] = frozenset(rights)
    return found


def _grants(
    document: Document, path: KeyPath, items: list[Any], roles: Mapping[str, object]
) -> list[tuple[str, str]]:
    found = []
    for number, item in enumerate(items):
        at = (*path, str(number))
        for word in item:
            if word not in _GRANT_KEYS:
                document.unknown_key((*at, str(word)), _GRANT_KEYS)
        tenant, role = item.get("tenant"), item.get("role")
        if not isinstance(tenant, str) or not (tenant == ALL_TENANTS or JOB_ID.match(tenant)):
            expected = f'a tenant, or "{ALL_TENANTS}" for all'
            document.fault((*at, "tenant"), shown(tenant), expected)
        elif role not in roles:
            field = f"{document.where(at)}: {'.'.join((*at, 'role'))}"
            document.faults.append(unknown("role", str(role), roles, field))
        else:
            found.append((tenant, role))
    return found


def _issuers(document: Document, given: Mapping[str, Any]) -> dict[str, OidcIssuer]:
    found: dict[str, OidcIssuer] = {}
    for name, values in given.items():
        path: KeyPath = ("access", "issuers", name)
        if "issuer" not in values or any(one.issuer == values["issuer"] for one in found.values()):
            if "issuer" in values:
                document.fault((*path, "issuer"), "the issuer of another entry", "each issuer once")
            continue
        audiences = [
            *values.get("audiences", ()),
            *(values[key] for key in ("client_id", "cli_client_id") if values.get(key)),
        ]
        if not audiences:
            document.fault(
                (*path, "audiences"),
                "no audience and no client id",
                "whom its tokens are meant for: audiences, client_id or cli_client_id",
            )
            continue
        words: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        words["audiences"] = tuple(dict.fromkeys(audiences))
        found[name] = OidcIssuer(name=name, **words)
    return found
