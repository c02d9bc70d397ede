"""The argument list, directories and environment that a job is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.messages import StartJob
from stores.base import Store, job_key, quoted

_PASSED_ON = (
    "PATH", "HOME", "LANG", "LC_ALL", "USER", "LOGNAME", "SHELL", "TZ", "LD_LIBRARY_PATH",
    "CUDA_HOME",
)  # fmt: skip
_DEFAULTS = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8"}
MASTER_PORT = 29500
"""PyTorch's own default; the first slot is added, so that neighbours on a VM do not collide."""


@dataclass(frozen=True, slots=True)
class Places:
    """Directories of one attempt."""

    base: Path
    """On this VM; removed when the attempt ends."""
    checkpoints: Path
    """Shared by all attempts of the job."""
    outputs: Path

    @property
    def work(self) -> Path:
        return self.base / "work"

    @property
    def temporary(self) -> Path:
        return self.base / "tmp"

    @property
    def status_file(self) -> Path:
        return self.base / "status.jsonl"

    def make(self) -> None:
        """Create them all. The status file too, so that `>>` and `open(…, "a")` both work."""
        for directory in (self.work, self.temporary, self.checkpoints, self.outputs):
            directory.mkdir(parents=True, exist_ok=True)
        self.status_file.touch()


def places_for(order: StartJob, vm_dir: Path, store: Store) -> Places:
    """Durable directories lie in the store if it is a file system. With gs:// they lie on the VM's
    disk: they survive the attempt there, but not the VM."""
    spec = order.spec

    def durable(kind: str) -> Path:
        # The members of a gang write one checkpoint together.
        whose = gang_id(order) if kind == "checkpoints" else spec.job_id
        key = job_key(kind, spec.tenant_id, spec.user_id, whose)
        return store.directory(key) or vm_dir / key

    return Places(
        base=vm_dir / "jobs" / quoted(order.lease_id),
        checkpoints=durable("checkpoints"),
        outputs=durable("artifacts") / str(order.attempt),
    )


def gang_id(order: StartJob) -> str:
    """The job that people know: a member's own id has its rank at the end."""
    return order.spec.job_id.removesuffix(f".{order.rank}") if order.rank else order.spec.job_id


def argv_for(order: StartJob) -> list[str]:
    """Words as they are; a shell only if the job asks for one."""
    if order.spec.shell:
        return ["/bin/sh", "-c", *order.spec.command]
    return list(order.spec.command)


def environment_for(order: StartJob, places: Places, ours: Mapping[str, str]) -> dict[str, str]:
    """A clean base, then the job's own variables, then those that are ours to set."""
    base = _DEFAULTS | {name: ours[name] for name in _PASSED_ON if name in ours}
    base["TMPDIR"] = str(places.temporary)
    return {**base, **order.spec.environment, **_facts(order, places)}


def _facts(order: StartJob, places: Places) -> dict[str, str]:
    spec = order.spec
    host, port = _leader(order)
    facts = {
        "ZEN_JOB_ID": spec.job_id,
        "ZEN_ATTEMPT": str(order.attempt),
        "ZEN_TENANT": spec.tenant_id,
        "ZEN_CLUSTER": order.cluster,
        "ZEN_REGION": order.region,
        "CUDA_VISIBLE_DEVICES": ",".join(str(slot) for slot in order.slots),
        "ZEN_GANG_ID": gang_id(order),
        "ZEN_RANK": str(order.rank),
        "ZEN_WORLD_SIZE": str(order.world_size),
        "ZEN_LEADER_ADDRESS": order.leader_address or f"{host}:{port}",
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "RANK": str(order.rank),
        "WORLD_SIZE": str(order.world_size),
        "ZEN_CHECKPOINT_DIR": str(places.checkpoints),
        "ZEN_OUTPUT_DIR": str(places.outputs),
        "ZEN_STATUS_FILE": str(places.status_file),
    }
    if order.attempt > 1 and any(places.checkpoints.iterdir()):
        facts["ZEN_RESUME_FROM"] = str(places.checkpoints)
    return facts


def _leader(order: StartJob) -> tuple[str, str]:
    own_port = str(MASTER_PORT + min(order.slots, default=0))
    host, colon, port = order.leader_address.rpartition(":")
    if not colon:
        return order.leader_address or "127.0.0.1", own_port
    return host, port
