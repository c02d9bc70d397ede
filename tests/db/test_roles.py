"""Database roles: a query that forgot its tenants finds nothing of others, and nobody has rights
that the service does not need."""
# ruff: noqa: S608  # only our own names are put into these texts

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import psycopg
import pytest

from core.access import EVERY_TENANT, Tenants
from core.errors import NotFound, StoreDown
from core.job import JobKey
from core.reads import JobFilter
from db import groups, migrate, reads
from db.reads import PostgresReads
from db.roles import API, LEADER, POLICIES, missing_roles, tenants_word
from db.store import PostgresStore
from db.tables import metadata
from db.tenant_connections import TenantPool
from tests.db.builders import Maker, submitted
from tests.db.contract.audit import ENTRY

pytestmark = pytest.mark.slow
_MISUSE = """
CREATE TEMP TABLE mine (a int);
CREATE TRIGGER mine AFTER TRUNCATE ON mine EXECUTE FUNCTION zen_jobs_truncate()
"""
RED, BLUE = Tenants(frozenset({"red"})), Tenants(frozenset({"blue"}))
_CODE = {"code_packs", "code_chunks", "code_trees", "code_tree_packs"}
NOT_FOR_CALLERS = {"audit_log", "grants", "secrets", "tenants", *_CODE}
"""Tables with tenants of which the API's role reads nothing."""


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    jobs = [submitted(_of(tenant)) for tenant in ("red", "blue")]
    await opened.commit([(job,) for job in jobs], None)
    yield opened
    await opened.close()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[TenantPool]:
    made = TenantPool(database_url, "test")
    await made.store.open()
    yield made
    await made.store.close()


def _of(tenant_id: str):  # type: ignore[no-untyped-def]
    made = Maker().job(f"{tenant_id}-1")
    uid = made.uid[:-1] + ("a" if tenant_id == "red" else "b")
    return replace(made, uid=uid, spec=replace(made.spec, tenant_id=tenant_id))


async def rows(pool: TenantPool, tenants: Tenants, query: str) -> list[object]:
    async with pool.connection(tenants) as connection:
        return [row[0] for row in await (await connection.execute(query.encode())).fetchall()]


async def test_a_query_without_a_condition_sees_its_tenants_alone(
    store: PostgresStore, pool: TenantPool
) -> None:
    """In every table of jobs; one connection after the other serves different callers."""
    everything = "SELECT job_id FROM jobs ORDER BY 1"
    assert await rows(pool, RED, everything) == ["red-1"]
    assert await rows(pool, BLUE, everything) == ["blue-1"]
    assert await rows(pool, Tenants(), everything) == []
    assert await rows(pool, Tenants(frozenset({"red", "blue"})), everything) == ["blue-1", "red-1"]
    assert await rows(pool, EVERY_TENANT, everything) == ["blue-1", "red-1"]
    counted = "SELECT DISTINCT tenant_id FROM job_counts ORDER BY 1"
    assert await rows(pool, RED, counted) == ["red"]
    assert await rows(pool, EVERY_TENANT, counted) == ["", "blue", "red"]
    for tenants, count in ((RED, 1), (Tenants(), 0), (EVERY_TENANT, 2)):
        assert await rows(pool, tenants, "SELECT count(*) FROM timelines") == [count]


async def test_a_session_that_was_told_no_tenants_sees_nothing(
    store: PostgresStore, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(f"SET ROLE {API}".encode())
        for table in POLICIES:
            (count,) = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() or ()
            assert count == 0, table


async def test_a_read_that_lost_its_condition_still_hides_others(
    store: PostgresStore, pool: TenantPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line alone: conditions on the tenant are taken out of the texts."""
    lost = groups.ONE_JOB.replace("j.tenant_id = ANY(%s::text[])", "%s::text[] IS NOT NULL")
    assert lost != groups.ONE_JOB
    monkeypatch.setattr(reads, "ONE_JOB", lost)
    forgetful = PostgresReads(store)
    bound = PostgresReads(store, pool.bound(RED))
    of_blue = await forgetful.job("blue-1", None, RED)
    assert of_blue.job.spec.tenant_id == "blue"  # without the second line it is told
    page = await bound.jobs(JobFilter(), 10, None)
    assert ([row.job.spec.job_id for row in page.rows], page.total) == (["red-1"], 0)
    with pytest.raises(NotFound):
        await bound.job("blue-1", None, RED)
    uid = of_blue.job.uid
    assert len(await forgetful.events(uid, 10, 0)) == 1
    assert not await bound.events(uid, 10, 0)
    assert not await bound.attempts(uid)
    assert not await bound.waits(uid)
    assert not (await bound.milestones([uid])).get(uid)


DENIED = {
    "read the hashes of keys": (API, "SELECT hash FROM api_keys"),
    "read grants": (API, "SELECT * FROM grants"),
    "read the audit log": (API, "SELECT * FROM audit_log"),
    "write to the audit log": (API, "INSERT INTO audit_log DEFAULT VALUES"),
    "empty the audit log": (API, "TRUNCATE audit_log"),
    "read messages": (API, "SELECT body FROM dead_letters"),
    "read secrets": (API, "SELECT * FROM secrets"),
    "change jobs": (API, "UPDATE jobs SET status = 'QUEUED'"),
    "delete jobs": (API, "DELETE FROM jobs"),
    "drop policies": (API, "DROP POLICY tenants ON jobs"),
    "switch them off": (API, "ALTER TABLE jobs DISABLE ROW LEVEL SECURITY"),
    "make tables": (API, "CREATE TABLE mine (a int)"),
    "become the schema": (API, "UPDATE alembic_version SET version_num = '0'"),
    "change the log as leader": (LEADER, "UPDATE audit_log SET target = 'x'"),
    "delete the log as leader": (LEADER, "DELETE FROM audit_log"),
    "empty the log as leader": (LEADER, "TRUNCATE audit_log"),
    "drop its triggers": (LEADER, "ALTER TABLE audit_log DISABLE TRIGGER ALL"),
    "change the schema as leader": (LEADER, "ALTER TABLE jobs ADD COLUMN mine int"),
    "change its version": (LEADER, "UPDATE alembic_version SET version_num = '0'"),
    "empty the counts": (API, _MISUSE),
    "empty the counts as leader": (LEADER, _MISUSE),
    "make roles": (LEADER, "CREATE ROLE mine SUPERUSER"),
}


@pytest.mark.parametrize("what", DENIED)
def test_roles_are_denied_what_the_service_does_not_need(database_url: str, what: str) -> None:
    """By PostgreSQL, whatever our own code says."""
    role, statement = DENIED[what]
    with psycopg.connect(database_url) as connection:
        connection.execute(f"SET ROLE {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())


async def test_the_leader_writes_the_log_and_its_links(store: PostgresStore) -> None:
    """And nothing else of it."""
    async with store.connection() as connection:
        row = await (await connection.execute("SELECT current_user")).fetchone()
    assert row == (LEADER,)
    done = await store.commit([(ENTRY,)], None)
    assert done.all_applied


def test_every_table_with_tenants_is_bound_or_not_for_callers() -> None:
    """A new table with tenants' rows, or rows of their jobs, needs a policy before a caller reads
    it."""
    of_tenants = {
        name
        for name, table in metadata.tables.items()
        if "tenant_id" in table.columns
        or any(key.column.table.name == "jobs" for key in table.foreign_keys)
    }
    assert of_tenants <= POLICIES.keys() | NOT_FOR_CALLERS
    assert not POLICIES.keys() & NOT_FOR_CALLERS


def test_the_api_reads_bound_tables_alone(database_url: str) -> None:
    """As PostgreSQL has it."""
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "SELECT table_name, privilege_type FROM information_schema.role_table_grants "
            "WHERE grantee = %s",
            (API,),
        ).fetchall()
        secured = connection.execute(
            "SELECT tablename FROM pg_policies WHERE policyname = 'tenants' "
            "AND permissive = 'RESTRICTIVE' AND roles = ARRAY[%s]::name[]",
            (API,),
        ).fetchall()
    assert sorted(found) == sorted((table, "SELECT") for table in POLICIES)
    assert {row[0] for row in secured} == POLICIES.keys()


def test_roles_are_made_again(database_url: str) -> None:
    """Repeating changes nothing; rights that were taken away come back."""
    with psycopg.connect(database_url) as connection:
        connection.execute(f"REVOKE SELECT ON jobs FROM {API}".encode())
        connection.execute("DROP POLICY tenants ON jobs")
    assert migrate.apply_roles_now(database_url) == []
    test_the_api_reads_bound_tables_alone(database_url)


async def test_a_database_without_rights_for_us_says_so(
    store: PostgresStore, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(f"REVOKE SELECT ON jobs FROM {LEADER}".encode())
    with pytest.raises(StoreDown, match="zen db roles gives our roles their rights"):
        await store.content_hash(JobKey("red", "0", "red-1"))


async def test_a_missing_right_on_the_newest_tables_is_noticed(
    pool: TenantPool, database_url: str
) -> None:
    """`/ready` asks for it."""
    await pool.check()
    with psycopg.connect(database_url) as connection:
        connection.execute(f"REVOKE SELECT ON job_labels FROM {API}".encode())
    with pytest.raises(StoreDown, match="permission denied for table job_labels"):
        await pool.check()


@pytest.fixture
def plain_login(database_url: str) -> Iterator[str]:
    """The URL of a login that is no member of our roles."""
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE ROLE zen_plain LOGIN")
    yield database_url.replace("zen@", "zen_plain@")
    with psycopg.connect(database_url) as connection:
        connection.execute("DROP OWNED BY zen_plain")
        connection.execute("DROP ROLE zen_plain")


@pytest.fixture
def owner_login(database_url: str, empty_database_url: str) -> Iterator[str]:
    """The URL of an empty database for a login that may make tables, but no roles. Our roles exist:
    the other database has made them."""
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("CREATE ROLE zen_owner LOGIN")
        connection.execute("GRANT ALL ON SCHEMA public TO zen_owner")
    yield empty_database_url.replace("zen@", "zen_owner@")
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("DROP OWNED BY zen_owner")
        connection.execute("DROP ROLE zen_owner")


def test_an_owner_that_may_not_make_roles_gives_them_their_rights(owner_login: str) -> None:
    """With the upgrade that makes the tables; what the owner may not become is still told."""
    migrate.upgrade(owner_login)
    with psycopg.connect(owner_login) as connection:
        for role, right in ((LEADER, "INSERT"), (API, "SELECT")):
            for table in ("jobs", "job_counts", "job_labels"):
                query = "SELECT has_table_privilege(%s, %s, %s)"
                assert connection.execute(query, (role, table, right)).fetchone() == (True,)
    test_the_api_reads_bound_tables_alone(owner_login)
    assert migrate.apply_roles_now(owner_login) == [LEADER, API]


async def test_a_session_that_cannot_become_its_role_is_not_used(
    database_url: str, plain_login: str
) -> None:
    """Row-level security would hold nobody back. Once the login may, it is used at once."""
    with psycopg.connect(database_url) as connection:
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO zen_plain")
    strict = TenantPool(plain_login, "strict", role_required=True)
    lenient = PostgresStore(plain_login)
    await strict.store.open()
    await lenient.open()
    try:
        assert await lenient.content_hash(JobKey("red", "0", "nothing")) is None
        with pytest.raises(StoreDown, match="zen db roles"):
            async with strict.connection(RED):
                pass
        with psycopg.connect(database_url) as connection:
            connection.execute(f"GRANT {API} TO zen_plain".encode())
        async with strict.connection(RED) as bound:
            assert await (await bound.execute("SELECT current_user")).fetchone() == (API,)
    finally:
        await strict.store.close()
        await lenient.close()


async def test_a_login_of_its_own_for_callers_has_nothing_to_go_back_to(
    database_url: str, plain_login: str
) -> None:
    """What is injected into a query of theirs finds no rights beyond the role's."""
    with psycopg.connect(database_url) as connection:
        connection.execute("ALTER ROLE zen_plain NOINHERIT")
        connection.execute(f"GRANT {API} TO zen_plain".encode())
    pool = TenantPool(plain_login, "own", role_required=True)
    await pool.store.open()
    try:
        async with pool.connection(RED) as bound:
            await bound.execute("SELECT * FROM jobs")
            for escape in ("RESET ROLE", f"SET ROLE {LEADER}", "SET SESSION AUTHORIZATION zen"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await bound.execute(f"{escape}; SELECT * FROM jobs".encode())
    finally:
        await pool.store.close()


def test_words() -> None:
    assert [tenants_word(t) for t in (EVERY_TENANT, Tenants(), RED)] == ["*", "", "red"]
    assert missing_roles(lambda _: [(LEADER, True), (API, False)]) == [API]
