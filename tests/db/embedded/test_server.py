"""The embedded PostgreSQL: private, durable, and gone when its owner is gone."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import psycopg
import pytest

from db.embedded import server as embedded
from db.embedded.server import Disguise, EmbeddedFailed, EmbeddedPostgres

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root needs a disguise")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    made = EmbeddedPostgres(tmp_path / "pg", fsync=False)
    yield made
    made.stop()


def socket_dir(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=20) as connection:
        cursor = connection.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]


def until(condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    """Waits for a condition of other processes, which tell nobody."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {limit_s} s"
        time.sleep(0.02)


def processes_of(home: Path) -> list[psutil.Process]:
    """Every process that has to do with this server: by its arguments or where it works."""
    found = []
    for process in psutil.process_iter():
        try:
            near = str(home) in " ".join(process.cmdline()) or process.cwd().startswith(str(home))
        except psutil.Error:
            continue
        if near and process.pid != os.getpid():
            found.append(process)
    return found


def run_alone(home: Path, *more: str, **options: object) -> subprocess.Popen[bytes]:
    argv = [
        sys.executable,
        "-m",
        "db.embedded.server",
        "run",
        "--data-dir",
        str(home),
        "--no-fsync",
    ]
    return subprocess.Popen([*argv, *more], cwd=ROOT, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload, no-any-return]


def first_line(process: subprocess.Popen[bytes]) -> dict[str, object]:
    assert process.stdout is not None
    line: dict[str, object] = json.loads(process.stdout.readline())
    return line


def test_serves_on_a_private_socket_only(server: EmbeddedPostgres) -> None:
    """No TCP port is opened, and only its owner may enter the socket's directory."""
    url = server.start()
    assert ask(url, "SELECT 1") == 1
    assert ask(url, "SHOW listen_addresses") == ""
    place = socket_dir(url)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert len(str(place / ".s.PGSQL.5432")) <= 100


def test_data_outlives_a_stop(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """After stop() nothing runs and the socket's directory is gone; the next start finds the
    data."""
    url = server.start()
    ask(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    assert processes_of(tmp_path) == []
    assert not socket_dir(url).exists()
    assert ask(server.start(), "SELECT answer FROM kept") == 42


def test_closed_directories_stay_closed(tmp_path: Path) -> None:
    """A 0700 directory above the data is no obstacle, and nobody's permissions change."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    above = [closed, *closed.parents]
    before = [(p, p.stat().st_mode, p.stat().st_uid) for p in above]
    server = EmbeddedPostgres(closed / "deep" / "pg", fsync=False)
    try:
        assert ask(server.start(), "SELECT 1") == 1
    finally:
        server.stop()
    assert [(p, p.stat().st_mode, p.stat().st_uid) for p in above] == before


@as_root
def test_root_without_user_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where user namespaces are forbidden root runs it under a user id of its own, below a
    closed directory too; data made the other way is taken over, and back."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(closed / "pg", fsync=False)
    ask(server.start(), "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()

    real = embedded._works

    def no_namespaces(prefix: tuple[str, ...], binaries: Path, home: Path) -> bool:
        return prefix[0] != "unshare" and real(prefix, binaries, home)

    with monkeypatch.context() as patched:
        patched.setattr(embedded, "_works", no_namespaces)
        for home in (closed / "pg", closed / "fresh"):
            other = EmbeddedPostgres(home, fsync=False)
            url = other.start()
            assert psutil.Process(other.pid).uids().effective not in (0, 65534)
            assert ask(url, "SELECT 1") == 1
            other.stop()
    assert ask(server.start(), "SELECT answer FROM kept") == 42
    server.stop()


@as_root
def test_root_without_any_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root without a way out is told what to do."""
    monkeypatch.setattr(embedded, "_works", lambda *_: False)
    with pytest.raises(EmbeddedFailed, match="DATABASE_URL"):
        EmbeddedPostgres(tmp_path / "pg").start()


def test_others_run_it_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user who is not root needs no disguise."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(embedded, "_has_name", lambda _: True)
    chosen = embedded.choose_disguise(tmp_path, tmp_path)
    assert isinstance(chosen, Disguise)
    assert chosen.serve_uid is None
    assert "unshare" not in chosen.serve


def test_a_user_id_without_a_name_borrows_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Containers have such ids. The database is made in a user namespace; where that is forbidden
    the user is told what to do."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(embedded, "_has_name", lambda _: False)
    monkeypatch.setattr(embedded, "_works", lambda *_: True)
    chosen = embedded.choose_disguise(tmp_path, tmp_path)
    assert "unshare" in chosen.init
    assert "unshare" not in chosen.serve
    monkeypatch.setattr(embedded, "_works", lambda *_: False)
    with pytest.raises(EmbeddedFailed, match="user id 12345 has no entry in /etc/passwd"):
        embedded.choose_disguise(tmp_path, tmp_path)


_OWNER = """
import sys
from pathlib import Path
from db.embedded.server import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1]), fsync=False).start(), flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_after_kill_of_the_owner(tmp_path: Path) -> None:
    """kill -9 of the owner: within seconds no process and no socket is left, and a new owner can
    start on the same data at once."""
    home = tmp_path / "pg"
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(home)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdout is not None
    url = owner.stdout.readline().decode().strip()
    ask(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    owner.kill()
    owner.communicate()
    heir = EmbeddedPostgres(home, fsync=False)
    try:
        assert ask(heir.start(), "SELECT answer FROM kept") == 42
        assert not socket_dir(url).exists()
    finally:
        heir.stop()
    until(lambda: processes_of(home) == [], "the end of all processes")


def test_server_follows_its_watchdog(tmp_path: Path) -> None:
    """kill -9 of the supervisor itself takes the server along, and the next start cleans up."""
    home = tmp_path / "pg"
    supervisor = run_alone(home)
    url = str(first_line(supervisor)["url"])
    supervisor.kill()
    supervisor.communicate()
    until(lambda: processes_of(home) == [], "the end of the server")
    heir = EmbeddedPostgres(home, fsync=False)
    heir.start()
    heir.stop()
    assert not socket_dir(url).exists()


def test_stale_pid_file(tmp_path: Path) -> None:
    """After kill -9 of the server what was committed is there again, though the pid file names
    a living process."""
    server = EmbeddedPostgres(tmp_path / "pg")
    ask(server.start(), "CREATE TABLE kept AS SELECT 42 AS answer")
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    until(lambda: processes_of(tmp_path) == [], "the end of all processes")
    pid_file = tmp_path / "pg" / "pgdata" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    try:
        assert ask(server.start(), "SELECT answer FROM kept") == 42
    finally:
        server.stop()


def test_second_server_on_the_same_data(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """A second server on the same data is refused with a clear word; the first goes on."""
    url = server.start()
    with pytest.raises(EmbeddedFailed, match="already running"):
        EmbeddedPostgres(tmp_path / "pg", fsync=False).start()
    assert ask(url, "SELECT 1") == 1


def test_half_made_cluster_is_made_again(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """What a killed initdb left behind is not taken for a cluster."""
    staging = tmp_path / "pg" / "pgdata.new"
    staging.mkdir(parents=True)
    (staging / "PG_VERSION").write_text("16\n")
    assert ask(server.start(), "SELECT 1") == 1


def test_data_of_another_version(tmp_path: Path) -> None:
    """Data that none of our binaries can read is refused, and left alone."""
    data = tmp_path / "pg" / "pgdata"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(EmbeddedFailed, match=r"9\.6"):
        EmbeddedPostgres(tmp_path / "pg").start()
    assert (data / "PG_VERSION").read_text() == "9.6\n"


def test_server_that_cannot_start(tmp_path: Path) -> None:
    """A server that refuses to start is reported with its own words."""
    server = EmbeddedPostgres(tmp_path / "pg", fsync=False)
    server.start()
    server.stop()
    (tmp_path / "pg" / "pgdata" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(EmbeddedFailed, match="no_such_setting"):
        server.start()


def test_run_until_sigterm(tmp_path: Path) -> None:
    """As a process it says one line when it is ready, and ends cleanly on SIGTERM."""
    process = run_alone(tmp_path / "pg")
    ready = first_line(process)
    assert ready["event"] == "ready"
    assert ask(str(ready["url"]), "SELECT 1") == 1
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, b"")
    assert processes_of(tmp_path) == []


def test_stop_while_the_cluster_is_made(tmp_path: Path) -> None:
    """Told to stop in the middle of initdb it ends soon, leaves nothing running, and the next
    start works."""
    home = tmp_path / "pg"
    process = run_alone(home)
    until((home / "pgdata.new" / "PG_VERSION").exists, "the beginning of initdb")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")
    assert processes_of(home) == []
    server = EmbeddedPostgres(home, fsync=False)
    assert ask(server.start(), "SELECT 1") == 1
    server.stop()


def test_run_until_the_pipe_ends(tmp_path: Path) -> None:
    """With a pipe from its owner it ends when the pipe does, and a Ctrl-C is the owner's."""
    ours, theirs = os.pipe()
    process = run_alone(tmp_path / "pg", "--parent-fd", str(ours), pass_fds=(ours,))
    os.close(ours)
    url = str(first_line(process)["url"])
    process.send_signal(signal.SIGINT)
    assert ask(url, "SELECT 1") == 1
    os.close(theirs)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not socket_dir(url).exists()


def test_run_that_fails(tmp_path: Path) -> None:
    """A failure is one line of JSON and a status of 1."""
    data = tmp_path / "pg" / "pgdata"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("9.6\n")
    process = run_alone(tmp_path / "pg")
    line = first_line(process)
    process.communicate(timeout=60)
    assert (line["event"], process.returncode) == ("failed", 1)
