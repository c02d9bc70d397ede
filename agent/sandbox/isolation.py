"""How far this VM can keep its jobs apart, and what each job is given for it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.environment import AttemptDirectories
from agent.sandbox.accounts import UnixAccount, UnixAccounts, accounts_of
from agent.sandbox.cgroups import Cgroups, Group, find_cgroups
from agent.sandbox.metadata_wall import close_metadata_server
from core.ids import RandomIds
from core.job_users import draw_user, job_identity
from core.messages import StartJob
from core.sandbox import SHARED_DIRECTORY, SandboxRules
from stores.base import quoted

OPEN = Path("/var/lib/zen-jobs")
"""Where directories of jobs are that cannot be where their agent's are."""
HOME = Path("/run/zen")
"""Where a job with mounts of its own finds its directories."""
INSIDE_JOB = AttemptDirectories(base=HOME, checkpoints=HOME / "checkpoints")
TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108  # each job has its own
CODE = Path(__file__).resolve().parents[2]
GOOGLE = "Google Compute Engine"
"""As the machine's firmware calls itself."""
_KEY_FILE = HOME / "uid-key"
_KEY_BYTES = 32
_PROBE_S = 20.0
_HIDEPID_SINCE = (5, 8)
"""Before it, hiding processes in one /proc hides them in all."""

Mount = tuple[str, str, str]
"""Source, target, kind: as agent/sandbox/enter.py reads them."""


@dataclass(slots=True)
class Isolation:
    """What this VM can do. The default: jobs run as the agent does, and no kernel limits them."""

    rules: SandboxRules = field(default_factory=SandboxRules)
    uid_key: bytes = b""
    """Makes a job's user from its identity; empty: jobs run as the agent's user."""
    mounts: tuple[Mount, ...] | None = None
    """Of the machine, the same for all jobs; None: jobs have no mounts of their own."""
    cgroups: Cgroups | None = None
    notes: tuple[str, ...] = ()
    """What is missing, for the log."""
    open_place: Path | None = None
    """Where the directories of jobs are if the agent's own are closed to their users, and cannot be
    mounted for them; None: below the agent's directory and in the store."""
    refuses: str = ""
    """Why no job may run here: it would be root."""
    accounts: UnixAccounts | None = None
    """Under `zen node`: the people of the machine, as whom their jobs run."""
    _users: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Lease → its user, and the job that the user stands for."""

    def user_for(self, order: StartJob) -> int | None:
        """The user of the lease, until it is released; None: the agent's own. The members of a gang
        and the attempts of a job have the same one, because they share checkpoints; on one VM no
        two jobs have. The scheduler draws it, so that it is the same on all VMs."""
        if (account := self.account_of(order)) is not None:
            return account.uid
        if not self.uid_key:
            return None
        job = job_identity(order)
        drawn = order.user_draw or draw_user(self.uid_key, order)
        taken = {uid for uid, other in self._users.values() if other != job}
        for step in range(len(taken) + 1):
            uid = self.rules.uid_first + (drawn + step) % self.rules.uid_count
            if uid not in taken:
                self._users[order.lease_id] = (uid, job)
                return uid
        raise OSError(f"all {self.rules.uid_count} users of sandbox.uid_count are taken")

    def account_of(self, order: StartJob) -> UnixAccount | None:
        """The person of this machine whose job it is, if its jobs run as their people."""
        return self.accounts.of(order.spec.user_id) if self.accounts is not None else None

    def release(self, lease_id: str) -> None:
        self._users.pop(lease_id, None)

    def seen(self, places: AttemptDirectories) -> AttemptDirectories:
        """The directories by the names that the job knows."""
        return places if self.mounts is None else INSIDE_JOB

    def box(
        self, uid: int | None, places: AttemptDirectories, account: UnixAccount | None = None
    ) -> dict[str, object]:
        """What the shim's child is told before it becomes the job."""
        if account is not None:
            mounts = list(_own_directories(places))
            return {"uid": uid, "gid": account.gid, "groups": account.groups, "mounts": mounts}
        box: dict[str, object] = {"uid": uid, "pids_max": self.rules.pids_max}
        if uid is not None and self.mounts is not None:
            box["mounts"] = [*self.mounts, *_own_mounts(places), *_programs()]
        return box

    def group_for(self, order: StartJob) -> Group | None:
        """Limits of the lease by the kernel; None if there are none, or nobody can set them."""
        if self.cgroups is None:
            return None
        spec = order.spec
        return self.cgroups.make(quoted(order.lease_id), spec.memory_mb, spec.cpu_cores)


def _own_directories(places: AttemptDirectories) -> Iterator[Mount]:
    yield str(places.base), str(HOME), "bind"
    yield str(places.checkpoints), str(INSIDE_JOB.checkpoints), "bind"


def _own_mounts(places: AttemptDirectories) -> Iterator[Mount]:
    yield from _own_directories(places)
    for target in TEMPORARY:
        if target.is_dir():
            yield str(places.temporary), str(target), "bind"


def _programs() -> Iterator[Mount]:
    """What the job's own /tmp would hide of the machine's programs, to be read alone: the
    interpreter, the agent's own code (in a checkout: its examples too), the directories of PATH,
    and on a laptop the directory where its user started the stack."""
    words = (sys.base_prefix, sys.prefix, str(CODE), os.environ.get(SHARED_DIRECTORY, ""))
    found: list[Path] = []
    for path in _temporary((*words, *os.environ.get("PATH", "").split(os.pathsep))):
        if path.is_dir() and not any(path.is_relative_to(known) for known in found):
            found.append(path)
            yield str(path), str(path), "read"


@functools.lru_cache(maxsize=8)
def _temporary(words: tuple[str, ...]) -> tuple[Path, ...]:
    """Those of the directories that lie beneath a temporary one. Asked for each job: following the
    links of all of them takes longer than the rest of its mounts."""
    paths = [Path(word).resolve() for word in words if word]
    return tuple(
        path for path in paths if path not in TEMPORARY and any(map(path.is_relative_to, TEMPORARY))
    )


def find_isolation(
    rules: SandboxRules, vm_dir: Path, vm_name: str, *, own_machine: bool
) -> Isolation:
    """Tries it out. `own_machine`: a machine of a static pool, where jobs work for its user."""
    cgroups = find_cgroups(vm_name)
    notes = (
        [] if cgroups else ["memory_mb is watched, not limited, and cpu_cores is not: no cgroup"]
    )
    if os.geteuid() != 0:
        notes.append("jobs run as the agent's user (not root): they can signal and read it")
        return Isolation(rules, cgroups=cgroups, notes=tuple(notes))
    if own_machine:
        return _of_people(rules, cgroups, vm_dir, notes)
    if _has_metadata_server() and (why := close_metadata_server(rules)):
        notes.append(why)
    mounts = _machine_mounts(notes)
    why = _try(rules, mounts, vm_dir)
    if not why:
        return Isolation(rules, _uid_key(), mounts, cgroups, tuple(notes))
    notes.append(f"jobs share /tmp and see all of /proc: {why}")
    hidden = not all(_is_open(path) for path in (vm_dir, *vm_dir.parents))
    place = _open_place(vm_dir) if hidden else vm_dir
    if why := _try(rules, None, place):
        refuses = f"its jobs would run as root, which is never done: {why}"
        return Isolation(rules, cgroups=cgroups, notes=(*notes, refuses), refuses=refuses)
    if hidden:
        notes.append(f"directories of jobs are below {place}: {vm_dir} is closed to their users")
    found = Isolation(rules, _uid_key(), None, cgroups, tuple(notes))
    found.open_place = place if hidden else None
    return found


def _open_place(vm_dir: Path) -> Path:
    """The same for all agents of a stack: they share checkpoints."""
    stack = hashlib.sha256(str(vm_dir.resolve().parent).encode()).hexdigest()[:16]
    for directory in (OPEN, OPEN / stack, OPEN / stack / "jobs"):
        with suppress(OSError):  # then no job can be tried there, and the reason is told
            directory.mkdir(exist_ok=True)
            directory.chmod(0o711)
    return OPEN / stack


def _of_people(
    rules: SandboxRules, cgroups: Cgroups | None, vm_dir: Path, notes: list[str]
) -> Isolation:
    if why := _try(rules, (), vm_dir):
        notes.append(f"jobs of others than root are refused: {why}")
    accounts = accounts_of(os.environ, why)
    return Isolation(rules, mounts=(), cgroups=cgroups, accounts=accounts, notes=tuple(notes))


def _has_metadata_server() -> bool:
    """Whether this is a machine of Google's, real or rented for a stack of its own."""
    with suppress(OSError):
        return Path("/sys/class/dmi/id/product_name").read_text().strip() == GOOGLE
    return False


def _machine_mounts(notes: list[str]) -> tuple[Mount, ...]:
    mounts: list[Mount] = []
    # An interpreter in root's home directory stays usable; nothing else of that directory does.
    for prefix in {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve()}:
        closed = next((path for path in reversed(prefix.parents) if not _is_open(path)), None)
        if closed is not None:
            hide = ("tmpfs", str(closed), "hide")
            mounts += [*([] if hide in mounts else [hide]), (str(prefix), str(prefix), "read")]
    mounts.sort(key=lambda mount: mount[2] != "hide")
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    if found and (int(found[1]), int(found[2])) >= _HIDEPID_SINCE:
        mounts.append(("proc", "/proc", "proc"))
    else:
        notes.append(f"jobs see all of /proc: Linux {platform.release()} is older than 5.8")
    if Path("/dev/shm").is_dir():  # noqa: S108  # the job's own
        mounts.append(("tmpfs", "/dev/shm", "shm"))  # noqa: S108
    return tuple(mounts)


def _is_open(path: Path) -> bool:
    """Whether anybody may pass through the directory."""
    return bool(path.stat().st_mode & stat.S_IXOTH)


def _try(rules: SandboxRules, mounts: tuple[Mount, ...] | None, vm_dir: Path) -> str:
    """Why a process cannot be shut in here; empty if it can."""
    places = AttemptDirectories(vm_dir / "sandbox-probe", vm_dir / "sandbox-probe" / "checkpoints")
    try:
        HOME.mkdir(mode=0o755, exist_ok=True)
        places.make(owner=rules.uid_first)
        box = Isolation(rules, b"-", mounts).box(rules.uid_first, places)
        program = [sys.executable, "-I", "-S", str(Path(__file__).parent / "enter.py")]
        done = subprocess.run(
            [*program, json.dumps(box)],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stderr.strip()[-200:] if done.returncode else ""


def _uid_key() -> bytes:
    """One per machine and boot: jobs cannot foresee which user another job has, and all agents of a
    machine give a job the same one."""
    ids = RandomIds()
    for _ in range(2):
        with suppress(FileNotFoundError):
            key = _KEY_FILE.read_bytes()
            if len(key) == _KEY_BYTES:
                return key
        fresh = _KEY_FILE.with_suffix(f".{os.getpid()}")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, f"{ids.token()}{ids.token()}".encode())
        os.close(fd)
        with suppress(FileExistsError):
            os.link(fresh, _KEY_FILE)
        fresh.unlink()
    return _KEY_FILE.read_bytes()
