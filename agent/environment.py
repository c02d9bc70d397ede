"""The argument list, directories and environment that a job is given."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.status_file import STATUS_FILE
from core.containers import HOME
from core.messages import Size, StartJob
from stores.base import FileStore, job_key, quoted

_PASSED_ON = (
    "PATH", "HOME", "LANG", "LC_ALL", "USER", "LOGNAME", "SHELL", "TZ", "LD_LIBRARY_PATH",
    "CUDA_HOME",
)  # fmt: skip
_DEFAULTS = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8"}
MASTER_PORT = 29500
"""PyTorch's own default; the first slot is added, so that neighbours on a VM do not collide."""


@dataclass(frozen=True, slots=True)
class AttemptDirectories:
    """Directories of one attempt."""

    base: Path
    """On this VM; removed when the attempt ends."""
    checkpoints: Path
    """Shared by all attempts of the job."""

    @property
    def outputs(self) -> Path:
        """Stored as the attempt's artifacts when it ends."""
        return self.base / "outputs"

    @property
    def work(self) -> Path:
        return self.base / "work"

    @property
    def temporary(self) -> Path:
        return self.base / "tmp"

    @property
    def status_file(self) -> Path:
        return self.base / STATUS_FILE

    @property
    def size_file(self) -> Path:
        """Of an elastic job."""
        return self.base / "size" / "size.json"

    def make(
        self,
        *,
        owner: int | None = None,
        for_anybody: bool = False,
        shared: bool = False,
        filled: bool = False,
    ) -> None:
        """Create them all. The status file too, so that `>>` and `open(…, "a")` both work. With an
        owner they are theirs alone, and what holds them stays ours: a job cannot put something
        else where a directory was. An image may bring a user of its own, whom we do not know: then
        anybody may write. `shared`: others write to its checkpoints at the same time. `filled`: the
        job's code is there already, as ours."""
        directories = (self.work, self.temporary, self.outputs)
        for directory in (*directories, self.checkpoints):
            directory.mkdir(parents=True, exist_ok=True)
        self.status_file.touch()
        if filled and owner is None:
            self.base.chmod(0o755)
            if for_anybody:
                open_to_all(self.work)
        if for_anybody:
            for directory in (*directories, self.checkpoints):
                directory.chmod(0o777)
            self.status_file.chmod(0o666)
        if owner is not None:
            (self.base / "checkpoints").mkdir(exist_ok=True)  # where theirs are mounted
            os.chown(self.base, 0, owner)
            self.base.chmod(0o750)
            if filled:
                hand_over(self.work, owner)
            for path in (*directories, self.status_file):
                os.chown(path, owner, owner)
                path.chmod(0o600 if path == self.status_file else 0o700)
            hand_over(self.checkpoints, owner)
            self.checkpoints.chmod(0o777 if shared else 0o700)

    def close(self) -> None:
        """Nobody passes through what holds them: only for jobs that get there by mounts, which are
        made before they are who they are. Else a neighbour could write where a gang or the user of
        an image may."""
        for directory in (self.base.parent, self.checkpoints.parent):
            directory.chmod(0o700)


def hand_over(directory: Path, owner: int) -> None:
    """All of it becomes theirs, unless it is: an attempt on another VM had another user. Links are
    not followed. The directory itself is last, so that half a change is taken up again."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid == owner:
            return
        for _, directories, files, at in os.fwalk(".", dir_fd=fd):
            for name in (*directories, *files):
                os.chown(name, owner, owner, dir_fd=at, follow_symlinks=False)
        os.fchown(fd, owner, owner)
    except RecursionError as error:
        raise OSError(f"{directory} is nested too deeply") from error
    finally:
        os.close(fd)


def open_to_all(directory: Path) -> None:
    """Anybody may read and write what is below. Links are not followed."""
    for _, directories, files, at in os.fwalk(directory):
        for name in (*directories, *files):
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            if not stat.S_ISLNK(mode):
                runs = stat.S_ISDIR(mode) or mode & stat.S_IXUSR
                os.chmod(name, 0o777 if runs else 0o666, dir_fd=at)


INSIDE = AttemptDirectories(base=Path(HOME), checkpoints=Path(HOME) / "checkpoints")
"""The same places as a container sees them."""


def places_for(
    order: StartJob, vm_dir: Path, store: FileStore, open_place: Path | None = None
) -> AttemptDirectories:
    """Checkpoints lie in the store if it is a file system. Else they lie on the VM's disk, and
    agent/checkpoint_sync.py stores them. `open_place`: all of them are there, because the job's
    user reaches neither."""
    spec = order.spec
    # The members of a gang write one checkpoint together.
    key = job_key("checkpoints", spec.tenant_id, spec.user_id, order.job_name)
    kept = store.directory(key) if open_place is None else None
    here = open_place or vm_dir
    return AttemptDirectories(here / "jobs" / quoted(order.lease_id), kept or here / key)


def argv_for(order: StartJob) -> list[str]:
    """Words as they are; a shell only if the job asks for one."""
    if order.spec.shell:
        return ["/bin/sh", "-c", *order.spec.command]
    return list(order.spec.command)


def environment_for(
    order: StartJob,
    places: AttemptDirectories,
    ours: Mapping[str, str],
    seen: AttemptDirectories | None = None,
    person: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """A clean base, then the job's own variables, then the ones that are ours to set. `seen`: of a
    job with a user of its own, the places by the names that it knows; its home is where it
    works, or that of the `person` it runs as."""
    base = _DEFAULTS | {name: ours[name] for name in _PASSED_ON if name in ours}
    if seen is not None:
        base |= person or {"HOME": str(seen.work), "USER": "job", "LOGNAME": "job"}
    seen = seen or places
    base["TMPDIR"] = str(seen.temporary)
    return {**base, **_rendezvous(order), **_own(order), **_facts(order, places, seen)}


def environment_inside(order: StartJob, places: AttemptDirectories, devices: str) -> dict[str, str]:
    """For a container: its image is the base. `devices` are its GPUs as it counts them."""
    base = {"TMPDIR": str(INSIDE.temporary), **_rendezvous(order)}
    facts = _facts(order, places, INSIDE) | {"CUDA_VISIBLE_DEVICES": devices}
    return {**base, **_own(order), **facts}


def _own(order: StartJob) -> dict[str, str]:
    """The job's own variables, and its secrets."""
    return {**order.spec.environment, **order.secret_values}


def _rendezvous(order: StartJob) -> dict[str, str]:
    """What `torchrun` takes for its options; a job's own words go before them."""
    size = order.size
    if size is None and order.world_size == 1:
        return {}
    host, port = _leader(order)
    nodes = f"{size.least}:{size.most}" if size is not None else str(order.world_size)
    return {
        "PET_NNODES": nodes,
        "PET_NPROC_PER_NODE": str(max(1, len(order.slots))),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_ID": order.job_name,
        # Without it each host guesses by its name whether it is the first one.
        "PET_RDZV_CONF": f"is_host={int(order.rank == 0)}",
    }


def size_words(order: StartJob, size: Size) -> dict[str, object]:
    """What the size file says."""
    ranks = [peer.rank for peer in size.members]
    return {
        "job_id": order.job_name,
        "generation": size.generation,
        "world_size": len(ranks),
        "min": size.least,
        "max": size.most,
        "rank": order.rank,
        # Ranks stay with their members; places are without gaps.
        "place": ranks.index(order.rank) if order.rank in ranks else None,
        "leader_address": order.leader_address,
        "members": [{"rank": peer.rank, "address": peer.address} for peer in size.members],
    }


def write_size(order: StartJob, size: Size, places: AttemptDirectories) -> None:
    """A reader sees the old file or the new one, never half of one. A job that put a link where the
    directory was gets none: the agent does not write through links."""
    file = places.size_file
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(size_words(order, size)) + "\n"
    at = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileNotFoundError):
            os.unlink("size.new", dir_fd=at)
        with os.fdopen(os.open("size.new", flags, 0o644, dir_fd=at), "w") as fresh:
            fresh.write(text)
        os.rename("size.new", file.name, src_dir_fd=at, dst_dir_fd=at)
    finally:
        os.close(at)


def _facts(order: StartJob, places: AttemptDirectories, seen: AttemptDirectories) -> dict[str, str]:
    """`seen`: the places by the names that the job knows."""
    spec = order.spec
    host, port = _leader(order)
    facts = {
        "ZEN_JOB_ID": spec.job_id,
        "ZEN_ATTEMPT": str(order.attempt),
        "ZEN_TENANT": spec.tenant_id,
        "ZEN_CLUSTER": order.cluster,
        "ZEN_REGION": order.region,
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in order.gpus),
        "ZEN_GANG_ID": order.job_name,
        "ZEN_RANK": str(order.rank),
        "ZEN_WORLD_SIZE": str(order.world_size),
        "ZEN_LEADER_ADDRESS": order.leader_address or f"{host}:{port}",
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "RANK": str(order.rank),
        "WORLD_SIZE": str(order.world_size),
        "ZEN_CHECKPOINT_DIR": str(seen.checkpoints),
        "ZEN_OUTPUT_DIR": str(seen.outputs),
        "ZEN_STATUS_FILE": str(seen.status_file),
    }
    if order.size is not None:
        facts["ZEN_SIZE_FILE"] = str(seen.size_file)
    if order.attempt > 1 and any(places.checkpoints.iterdir()):
        facts["ZEN_RESUME_FROM"] = str(seen.checkpoints)
    return facts


def _leader(order: StartJob) -> tuple[str, str]:
    own_port = str(MASTER_PORT + min(order.slots, default=0))
    host, colon, port = order.leader_address.rpartition(":")
    if not colon:
        return order.leader_address or "127.0.0.1", own_port
    return host, port
