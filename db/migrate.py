"""Brings a database to the schema we need. Safe when several replicas start at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

import migrations
from core.errors import StoreDown
from db.roles import apply_roles, missing_roles

if TYPE_CHECKING:
    import sqlalchemy as sa
    from alembic.config import Config

log = structlog.get_logger(__name__)

_LOCK = 0x5A454E01  # any number that nothing else in the database locks
_CONNECT_S = 5


def upgrade(url: str) -> None:
    """To HEAD; costs one query when there is nothing to do."""
    if current(url) == migrations.HEAD:
        return
    from alembic import command  # noqa: PLC0415  # half a second, only when there is work

    _run(url, lambda config: command.upgrade(config, "head"), roles=True)


def apply_roles_now(url: str) -> Sequence[str]:
    """Makes our roles, with the rights that they must have now; what is still missing."""
    _run(url, lambda _: None, roles=True)
    with psycopg.connect(url, connect_timeout=_CONNECT_S) as connection:
        return missing_roles(lambda words: connection.execute(words.encode()).fetchall())


def downgrade(url: str, revision: str) -> None:
    """Back to `revision`; "base" is the empty schema."""
    from alembic import command  # noqa: PLC0415

    _run(url, lambda config: command.downgrade(config, revision))


def current(url: str) -> str | None:
    """The revision the database is at; None before the first."""
    try:
        with psycopg.connect(url, connect_timeout=_CONNECT_S) as connection:
            found = connection.execute("SELECT to_regclass('alembic_version')").fetchone()
            if found is None or found[0] is None:
                return None
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except psycopg.OperationalError as fault:
        raise StoreDown(f"the database does not answer: {fault}") from fault
    return None if row is None else str(row[0])


def config() -> Config:
    """Alembic's configuration, without a file."""
    from alembic.config import Config  # noqa: PLC0415

    made = Config()
    made.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return made


def _apply_roles(connection: sa.Connection) -> None:
    """Without the right to make roles, a database has none until somebody makes them: `zen db
    roles`. The service then works with the rights of its login."""
    import sqlalchemy as sa  # noqa: PLC0415

    def attempt(what: str, statements: Sequence[str]) -> None:
        try:
            with connection.begin_nested():
                for words in statements:
                    connection.exec_driver_sql(words)
        except sa.exc.ProgrammingError as fault:
            if not isinstance(fault.orig, psycopg.errors.InsufficientPrivilege):
                raise
            log.warning("not allowed", what=what, why=str(fault.orig).splitlines()[0])

    apply_roles(lambda words: _rows(connection.exec_driver_sql(words)), attempt)


def _rows(result: sa.CursorResult[Any]) -> Sequence[Any]:
    return result.fetchall() if result.returns_rows else ()


def _run(url: str, step: Callable[[Config], None], *, roles: bool = False) -> None:
    import sqlalchemy as sa  # noqa: PLC0415

    made = config()
    engine = sa.create_engine(sqlalchemy_url(url), poolclass=sa.NullPool)
    try:
        # One transaction: a step that fails leaves nothing half done, and a replica that comes
        # second waits here, then finds nothing to do.
        with engine.begin() as connection:
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            made.attributes["connection"] = connection
            step(made)
            if roles:
                _apply_roles(connection)
    except sa.exc.OperationalError as fault:
        raise StoreDown(f"the database does not answer: {fault}") from fault
    finally:
        engine.dispose()


def sqlalchemy_url(url: str) -> str:
    """The same database for SQLAlchemy, which wants the driver named."""
    _, separator, rest = url.partition("://")
    return f"postgresql+psycopg{separator}{rest}"
