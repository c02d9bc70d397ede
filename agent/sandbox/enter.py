"""Shuts a process in before it becomes a job: its user, its mounts, its rights, its limits.

Runs in the shim's child, between fork and exec, as root or as an ordinary user. Standard library
only: shims run without site-packages. `python enter.py JSON` tries it and ends: the agent's test of
what this machine allows.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import sys

_CLONE_NEWNS = 0x00020000
_CLONE_NEWIPC = 0x08000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_RDONLY = 2, 4, 8, 1
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 32, 4096, 16384, 1 << 19
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITIES = 64
"""More than any kernel has: it refuses the first one that it does not know."""
_OOM_FIRST = b"500"
"""A machine without memory ends a job before it ends what runs the jobs."""
_libc = ctypes.CDLL(None, use_errno=True)


def enter(box: dict[str, object]) -> None:
    """OSError if any of it is refused: a job does not start half shut in.

    `uid` (null: no change), `pids_max` of a user of the job's own, or `gid` and `groups` of a
    person, and perhaps `mounts`: [source, target, kind] in order. The kinds: bind, read
    (read-only), hide (an empty directory), proc (with its own processes alone), shm.
    """
    _write("/proc/self/oom_score_adj", _OOM_FIRST)
    uid = box.get("uid")
    if isinstance(uid, int):
        if "mounts" in box:
            _private_mounts(box)
        if "pids_max" in box:
            # The user is the lease's own, so this counts the job's processes and no others.
            _limit_processes(int(str(box["pids_max"])))
        groups = [int(group) for group in box.get("groups", [])]  # type: ignore[attr-defined]
        _become(uid, int(str(box.get("gid", uid))), groups)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")


def execute(argv: list[str], env: dict[str, str]) -> None:
    """As os.execvpe, which imports a module first: the job's user may not be able to read it. Never
    returns; OSError says why."""
    places = [""] if "/" in argv[0] else env.get("PATH", os.defpath).split(os.pathsep)
    failure: OSError = FileNotFoundError(errno.ENOENT, "not found")
    for place in places:
        try:
            os.execve(os.path.join(place, argv[0]), argv, env)  # noqa: PTH118, S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failure = error
    raise failure


def _limit_processes(most: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = most if hard == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _become(uid: int, gid: int, groups: list[int]) -> None:
    for capability in range(_CAPABILITIES):
        if (
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
            and ctypes.get_errno() == errno.EINVAL
        ):
            break  # the kernel knows no more
    # The pipes of its output: a job may open /dev/stdout and /dev/stderr by name.
    for fd in (1, 2):
        os.fchown(fd, uid, gid)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)  # from here on all capabilities are gone


def _private_mounts(box: dict[str, object]) -> None:
    if _libc.unshare(_CLONE_NEWNS | _CLONE_NEWIPC) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    # What the machine mounts later appears here too; what is mounted here stays here.
    _mount(None, "/", None, _MS_SLAVE | _MS_REC)
    mounts = [(str(source), str(target), str(kind)) for source, target, kind in box["mounts"]]  # type: ignore[attr-defined]
    # Held first: a mount may cover the path of a later source.
    held = {
        source: os.open(source, os.O_PATH | os.O_CLOEXEC)
        for source, _, kind in mounts
        if kind in ("bind", "read")
    }
    for source, target, kind in mounts:
        match kind:
            case "proc":
                _mount("proc", target, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "hidepid=2")
            case "shm":
                _mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
            case "hide":
                _mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=64k")
            case "read":
                os.makedirs(target, exist_ok=True)  # noqa: PTH103  # no pathlib here
                _bind(held[source], target)
                _mount(None, target, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID)
            case _:
                _bind(held[source], target)
    for fd in held.values():
        os.close(fd)


def _bind(fd: int, target: str) -> None:
    _mount(f"/proc/self/fd/{fd}", target, None, _MS_BIND)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None) != 0:
        raise OSError(ctypes.get_errno(), f"mount on {target}")


def _write(path: str, text: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # open() would import a codec for it
        os.write(fd, text)
        os.close(fd)
    except OSError:
        return  # a hint to the kernel, not a wall


if __name__ == "__main__":
    try:
        enter(json.loads(sys.argv[1]))
    except OSError as error:
        sys.exit(f"{error.strerror} ({error.filename or error.args})")
