"""The page of rights: which role may call which route, from the endpoints and the roles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cli.reference.markdown import MADE_BY, cell, code, table
from cli.reference.rest import all_endpoints
from core.access import ROLES, Right

if TYPE_CHECKING:
    from scheduler.api.http.endpoint import Endpoint

_HEAD = f"""\
# Who may call what

{MADE_BY}
A role is granted for one tenant or for all of them ([Secure](../operator/secure.md)). `tenant`: for
the tenants that the grant names; what belongs to another tenant is answered as if it were not there
(404). `all`: only by a grant for all tenants (`'*'`). `own`: as `tenant`, but of jobs the caller's
own alone. Without a key each route but the public ones answers 401; `/docs` and `/openapi.json`
need `fleet.read`. A test calls every route as every role, for the caller's own job, a colleague's
and another tenant's, and compares the answers with `tests/scheduler/api/http/access.txt`.
"""


def page() -> str:
    """The whole page."""
    roles = list(ROLES)
    rights = table(
        ("Right", "Allows to", *roles),
        ((code(right), cell(right.meaning), *_cells(right, roles)) for right in Right),
    )
    return "\n".join((_HEAD, "## Rights\n", rights, "## Routes\n", _routes(all_endpoints(), roles)))


def _routes(endpoints: Iterable[Endpoint], roles: list[str]) -> str:
    rows = (
        (
            code(f"{endpoint.method} {endpoint.path}"),
            "public" if endpoint.right is None else code(endpoint.right),
            *_cells(endpoint.right, roles),
        )
        for endpoint in sorted(endpoints, key=lambda found: (found.path, found.method))
    )
    return table(("Route", "Right", *roles), rows)


def _cells(right: Right | None, roles: list[str]) -> list[str]:
    return [_cell(right, role) for role in roles]


def _cell(right: Right | None, role: str) -> str:
    if right is None:
        return "public"
    if right not in ROLES[role]:
        return "–"
    if right is Right.JOBS_OWN and Right.JOBS_MANAGE not in ROLES[role]:
        return "own"
    return "all" if right.of_service else "tenant"
