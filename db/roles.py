"""Database roles: what the service may do as a leader, and what it may read for one caller.

`zen_leader`: rows of all tenants, the schema's not at all, of the audit log only what is missing.
`zen_api`: what handlers read of jobs, and of those the rows of the tenants in `zen.tenants` alone,
by row-level security: a query that forgot its condition finds nothing of others.
"""
# ruff: noqa: S608  # only our own names are put into these texts

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from core.access import Tenants

LEADER = "zen_leader"
API = "zen_api"
ROLES = (LEADER, API)
OWN_LOGIN = "none"
"""The rights of the login itself: for tools that change the schema."""
SETTING = "zen.tenants"
"""Of a session: the tenants whose rows it sees, with commas; `*` for all, nothing for none."""
EVERY = "*"

_SEEN = f"(SELECT current_setting('{SETTING}', true))"  # a subquery is asked once per query
_ALL = f"{_SEEN} = '{EVERY}'"
_OWN = f"({_ALL} OR tenant_id = ANY (string_to_array({_SEEN}, ',')))"


def _of_job(column: str) -> str:
    """Of a table without a tenant: the row of a job that is seen."""
    return f"({_ALL} OR EXISTS (SELECT FROM jobs AS seen WHERE seen.uid = {column}))"


POLICIES = {
    "jobs": _OWN,
    "specs": _OWN,
    "cost_daily": _OWN,
    "job_counts": _OWN,
    "job_labels": _OWN,
    "job_events": _of_job("job_events.uid"),
    "timelines": _of_job("timelines.uid"),
    "job_waits": _of_job("job_waits.uid"),
    "attempts": _of_job("attempts.uid"),
    "job_costs": _of_job("job_costs.uid"),
    "waits": _of_job("waits.hold"),
}
"""Table → which of its rows a caller sees. Other tables are not the API's to read."""
_READ_ONLY = ("alembic_version",)

Execute = Callable[[str], Sequence[Any]]
"""Runs one statement; its rows, if it has any."""
Attempt = Callable[[str, Sequence[str]], None]
"""Runs statements of which all or none take effect: none if the login may not. The first word says
what they are for."""


def tenants_word(tenants: Tenants) -> str:
    """The value of the setting."""
    return EVERY if tenants.every else ",".join(sorted(tenants.names))


def missing_roles(execute: Execute) -> list[str]:
    """Roles that have to be made first, or given to who runs this."""
    found = execute(
        f"SELECT rolname, pg_has_role(current_user, oid, 'MEMBER') FROM pg_roles "
        f"WHERE rolname IN ('{LEADER}', '{API}')"
    )
    known = dict(found)
    return [role for role in ROLES if not known.get(role)]


def making(role: str, server_version: int) -> Iterator[str]:
    """Makes a role that nobody can log in as, and lets the login that runs this become it. Nobody
    has its rights unasked: the policies would bind its members too."""
    terms = " WITH INHERIT FALSE, SET TRUE" if server_version >= 160000 else ""
    yield (
        f"DO $$ BEGIN CREATE ROLE {role} NOLOGIN NOINHERIT; "
        "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )
    yield f"GRANT {role} TO CURRENT_USER{terms}"


def apply_roles(execute: Execute, attempt: Attempt) -> None:
    """Everything as it must be, as far as the login may; safe to repeat. An owner of the tables
    that may not make roles, nor become them, still gives their rights to roles that exist."""
    ((version, schema),) = execute(
        "SELECT current_setting('server_version_num')::int, quote_ident(current_schema())"
    )
    for role in missing_roles(execute):
        attempt(f"make {role}", tuple(making(role, version)))
    found = {name for (name,) in execute("SELECT rolname FROM pg_roles")}
    for role, statements in ((LEADER, leader_rights(schema)), (API, api_rights(schema))):
        if role in found:
            attempt(f"give {role} its rights", tuple(statements))


def leader_rights(schema: str) -> Iterator[str]:
    """As they must be now; safe to repeat."""
    yield f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {LEADER}"
    yield f"GRANT USAGE ON SCHEMA {schema} TO {LEADER}"
    yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {LEADER}"
    yield f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {LEADER}"
    for table in _READ_ONLY:
        yield f"REVOKE INSERT, UPDATE, DELETE ON {table} FROM {LEADER}"
    yield f"REVOKE UPDATE, DELETE ON audit_log FROM {LEADER}"
    yield f"GRANT UPDATE (number, hash) ON audit_log TO {LEADER}"


def api_rights(schema: str) -> Iterator[str]:
    """Rights and policies, as they must be now; safe to repeat. `everyone` leaves other logins with
    rights of their own as they were; `tenants` binds the API."""
    yield f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {API}"
    yield f"GRANT USAGE ON SCHEMA {schema} TO {API}"
    yield f"GRANT SELECT ON {', '.join(POLICIES)} TO {API}"
    for table, condition in POLICIES.items():
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        yield f"DROP POLICY IF EXISTS everyone ON {table}"
        yield f"CREATE POLICY everyone ON {table} USING (true) WITH CHECK (true)"
        yield f"DROP POLICY IF EXISTS tenants ON {table}"
        yield f"CREATE POLICY tenants ON {table} AS RESTRICTIVE TO {API} USING {condition}"
