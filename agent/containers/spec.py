"""How a job with an image becomes a container: its body for the Docker API, and its runtime."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.containers.docker import Docker, DockerError, find
from agent.containers.leftovers import VM, sweep
from agent.containers.registry import Token, auth_for
from agent.environment import INSIDE, AttemptDirectories, argv_for, environment_inside
from core.containers import ContainerRules
from core.messages import StartJob
from stores.base import quoted

SHM_BYTES = 16 * 1024**3
"""A bound, not a reservation: loaders of training data fail with the usual 64 MB."""
FILES_MAX = 1024 * 1024
PROCESSES_MAX = 32 * 1024
"""podman keeps no more for itself."""
_CDI = ("/etc/cdi", "/var/run/cdi")


class NoContainer(Exception):
    """Why a job with an image cannot run here."""


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """What a container gets for being shut in."""

    pids_max: int
    uid: int | None = None
    """None: the image's own user."""


class Runtime:
    """The container runtime of this VM, found when it is first needed."""

    def __init__(
        self,
        environ: Mapping[str, str],
        vm_name: str,
        rules: ContainerRules,
        *,
        real_gpus: bool,
        token: Token,
    ) -> None:
        self._environ, self._vm_name, self._rules = environ, vm_name, rules
        self._real_gpus, self._token = real_gpus, token
        # A pretend VM that loses power is found by it, and its containers as well.
        self._marks = {name: environ[name] for name in ("ZEN_VM_DIR",) if name in environ}
        self._gpus: str | None = None

    @property
    def user_of_job(self) -> bool:
        """Whether containers run as a user of their job's own."""
        return self._rules.user == "job"

    async def brief(
        self, order: StartJob, places: AttemptDirectories, limits: ContainerLimits
    ) -> dict[str, object]:
        """What the shim of a container needs to know, or NoContainer."""
        address = self._address()
        needs_gpus = self._real_gpus and bool(order.gpus)
        way = await asyncio.to_thread(self._gpu_way, address) if needs_gpus else ""
        return {
            "docker": address,
            "name": container_name(order),
            "image": order.spec.image,
            "auth": await auth_for(order.spec.image or "", self._environ, self._token),
            "create": self._body(order, places, way, limits),
        }

    def _body(
        self, order: StartJob, places: AttemptDirectories, way: str, limits: ContainerLimits
    ) -> dict[str, object]:
        body = create_body(order, places, self._rules, self._vm_name, way, self._marks)
        return shut_in(body, limits)

    async def abandon(self, order: StartJob) -> None:
        """Its shim is dead: nobody else ends it."""
        await asyncio.to_thread(Docker(self._address()).remove, container_name(order))

    async def sweep(self) -> tuple[list[str], list[str]]:
        """Removes what an earlier agent left: (containers, what went wrong)."""
        address, _ = find(self._environ)
        return await asyncio.to_thread(sweep, address, self._vm_name) if address else ([], [])

    def _address(self) -> str:
        address, why = find(self._environ)
        if not address:
            raise NoContainer(why)
        return address

    def _gpu_way(self, address: str) -> str:
        if self._gpus is None:
            try:
                info = Docker(address).info()
            except DockerError as error:
                raise NoContainer(f"the container runtime does not answer: {error}") from error
            self._gpus = gpu_way(info, cdi=any(_has_cdi(Path(place)) for place in _CDI))
        if not self._gpus:
            raise NoContainer(
                "the container runtime of this VM cannot hand out GPUs: it has neither the NVIDIA "
                f"runtime nor a CDI specification in {' or '.join(_CDI)}"
            )
        return self._gpus


def gpu_way(info: Mapping[str, object], *, cdi: bool) -> str:
    """How the runtime hands out GPUs: `nvidia`, `cdi` (Docker), `cdi-device` (podman), or not."""
    runtimes = info.get("Runtimes")
    if isinstance(runtimes, Mapping) and "nvidia" in runtimes:
        return "nvidia"
    if not cdi:
        return ""
    # Only Docker says where it looks; podman takes the names of devices instead.
    return "cdi" if info.get("CDISpecDirs") else "cdi-device"


def container_name(order: StartJob) -> str:
    """By its lease: unique, and known to the holder."""
    return "zen-" + quoted(order.lease_id).replace("%", "_").replace("~", "-")


def create_body(
    order: StartJob,
    places: AttemptDirectories,
    rules: ContainerRules,
    vm_name: str,
    way: str,
    marks: Mapping[str, str],
) -> dict[str, object]:
    """The body of `POST /containers/create`."""
    spec = order.spec
    gpus = [str(gpu) for gpu in order.gpus]
    # A container that is handed some GPUs counts them from 0; else it sees what the VM sees.
    devices = ",".join(str(number) for number in range(len(gpus))) if way else ",".join(gpus)
    env = {**environment_inside(order, places, devices), **marks}
    body: dict[str, object] = {
        "Image": spec.image,
        "Env": [f"{name}={value}" for name, value in env.items()],
        "Labels": {VM: vm_name, "zen.job": spec.job_id, "zen.lease": order.lease_id},
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "HostConfig": _host_config(order, places, rules, way),
    }
    if spec.working_dir:
        body["WorkingDir"] = spec.working_dir
    elif spec.code:
        body["WorkingDir"] = str(INSIDE.work)
    argv = argv_for(order)
    if spec.keep_entrypoint:
        body |= {"Cmd": argv} if argv else {}
    else:
        body |= {"Entrypoint": argv, "Cmd": []}
    return body


def shut_in(body: dict[str, object], limits: ContainerLimits) -> dict[str, object]:
    """The body of a container without capabilities or a way to more, with bounded processes."""
    host, env = body["HostConfig"], body["Env"]
    assert isinstance(host, dict), "create_body made it"
    assert isinstance(env, list), "create_body made it"
    bounds = {
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": limits.pids_max,
    }
    body = {**body, "HostConfig": {**host, **bounds}}
    if limits.uid is None:
        return body
    # The image does not know this user: without a home of its own it would be /.
    own = [f"HOME={INSIDE.work}", "USER=job", "LOGNAME=job"]
    return {**body, "User": f"{limits.uid}:{limits.uid}", "Env": [*own, *env]}


def _host_config(
    order: StartJob, places: AttemptDirectories, rules: ContainerRules, way: str
) -> dict[str, object]:
    spec = order.spec
    config: dict[str, object] = {
        "NetworkMode": rules.network_for(several=order.on_several_vms),
        # A first process that passes signals on and reaps: else SIGTERM does nothing to `sleep`.
        "Init": True,
        "Binds": [
            f"{places.base}:{INSIDE.base}:rw",
            f"{places.checkpoints}:{INSIDE.checkpoints}:rw",
            *rules.binds(),
        ],
        # We carry the output; a second copy on the VM's disk would have no bound.
        "LogConfig": {"Type": "none"},
        "ShmSize": SHM_BYTES,
        # Within our own: a runtime's defaults may be above what it is itself allowed.
        "Ulimits": [
            _limit("nofile", resource.RLIMIT_NOFILE, FILES_MAX),
            _limit("nproc", resource.RLIMIT_NPROC, PROCESSES_MAX),
        ],
    }
    if spec.memory_mb:
        config |= {"Memory": spec.memory_mb * 1024**2, "MemorySwap": spec.memory_mb * 1024**2}
    if spec.cpu_cores:
        config["NanoCpus"] = int(spec.cpu_cores * 1e9)
    return config | gpu_request(way, order.gpus)


def gpu_request(way: str, slots: tuple[int, ...]) -> dict[str, object]:
    """As `--gpus device=…` does it, where the runtime knows that."""
    if not slots:
        return {}
    names = [str(slot) for slot in slots]
    cdi = [f"nvidia.com/gpu={name}" for name in names]
    match way:
        case "nvidia":
            request = {"Driver": "nvidia", "DeviceIDs": names, "Capabilities": [["gpu"]]}
            return {"DeviceRequests": [request]}
        case "cdi":
            return {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": cdi}]}
        case "cdi-device":
            return {"Devices": [{"PathOnHost": name} for name in cdi]}
        case _:
            return {}


def _limit(name: str, which: int, most: int) -> dict[str, object]:
    _, hard = resource.getrlimit(which)
    value = most if hard == resource.RLIM_INFINITY else min(hard, most)
    return {"Name": name, "Soft": value, "Hard": value}


def _has_cdi(place: Path) -> bool:
    try:
        return any("nvidia" in entry.name for entry in os.scandir(place))
    except OSError:
        return False
