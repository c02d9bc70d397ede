"""PostgreSQL for tests: one server per test process, one fresh database per test."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings

from db import migrate
from db.embedded.server import EmbeddedPostgres
from tests.skips import why_unfounded

# Tests start processes while clients of the bus are open: gRPC must not meddle with forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Suites that several stores run: without this their assertions would fail without a word.
pytest.register_assert_rewrite("tests.db.builders", "tests.db.contract")

# How long an example takes says something of the machine and its load, nothing of the product.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_numbers = itertools.count(1)

# Workers take whole files, in this order and then in that of the directories: a worker that got a
# long one last would keep the others waiting. They wait more than they compute, and so go well
# together with what comes after them.
LONG_FILES = (
    "tests/e2e/test_chaos.py",
    "tests/e2e/test_road_of_a_job.py",
    "tests/cli/commands/test_demo_run.py",
    "tests/localbus/test_service_contract.py",
    "tests/localbus/test_server.py",
    "tests/db/test_store_races.py",
    "tests/agent/test_main_process.py",
    "tests/agent/test_runner_contract.py",
    "tests/agent/containers/test_shim.py",
    "tests/db/embedded/test_server.py",
    "tests/sim/cloud/test_machines.py",
    "tests/cli/local/test_stack.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first; within a file nothing moves."""
    place = {name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skip hides nothing: one whose tool is here, or that names none, fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return  # a worker of xdist: its controller decides
    for report in reporter.stats.get("skipped", []):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        wrong = why_unfounded(reason)
        if wrong:
            reporter.write_line(f"unfounded skip: {report.nodeid}: {reason} ({wrong})", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server where databases may be made: DATABASE_URL, a container if one is
    asked for with ZEN_TEST_DOCKER=1, else the embedded one."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given
    elif os.environ.get("ZEN_TEST_DOCKER") == "1" and _docker_answers():
        yield from _container()
    else:
        yield from _embedded()


@pytest.fixture(scope="session")
def migrated_template(postgres: str) -> Iterator[str]:
    """The name of a database at the newest schema, to copy from."""
    name = f"zen_template_{_worker()}"
    _administer(postgres, f'CREATE DATABASE "{name}"')
    migrate.upgrade(at_database(postgres, name))
    yield name
    _administer(postgres, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def database_url(postgres: str, migrated_template: str) -> Iterator[str]:
    """A fresh, migrated database, dropped after the test."""
    yield from _migrated(postgres, migrated_template)


@pytest.fixture(scope="module")
def shared_database_url(postgres: str, migrated_template: str) -> Iterator[str]:
    """A migrated database for all tests of a file that only read it."""
    yield from _migrated(postgres, migrated_template)


def _migrated(postgres: str, migrated_template: str) -> Iterator[str]:
    name = f"zen_test_{_worker()}_{next(_numbers)}"
    _administer(postgres, f'CREATE DATABASE "{name}" TEMPLATE "{migrated_template}"')
    yield at_database(postgres, name)
    _administer(postgres, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def empty_database_url(postgres: str) -> Iterator[str]:
    """A fresh database without any tables."""
    name = f"zen_empty_{_worker()}_{next(_numbers)}"
    _administer(postgres, f'CREATE DATABASE "{name}"')
    yield at_database(postgres, name)
    _administer(postgres, f'DROP DATABASE "{name}" WITH (FORCE)')


def at_database(url: str, name: str) -> str:
    """The same server, another database."""
    base, _, query = url.partition("?")
    host = base.rpartition("/")[0]
    return f"{host}/{name}" + (f"?{query}" if query else "")


def _embedded() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="zen-test-", dir=_fast_place()) as home:
        server = EmbeddedPostgres(Path(home) / "pg", fsync=False)
        yield server.start()
        server.stop()


def _fast_place() -> str | None:
    """Memory if there is plenty: copying a database takes 10 ms there, 250 ms on a disk."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * 1024**3
    return str(memory) if roomy and os.access(memory, os.W_OK) else None


def _docker_answers() -> bool:
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _container() -> Iterator[str]:
    from testcontainers.postgres import PostgresContainer  # noqa: PLC0415  # only when asked for

    with PostgresContainer("postgres:16-alpine", driver=None) as container:
        yield container.get_connection_url()


def _worker() -> str:
    """Process and worker, since several runs may share one server."""
    return f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{os.getpid()}"


def _administer(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=20) as connection:
        connection.execute(statement.encode())
