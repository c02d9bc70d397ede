"""Roads that a real runtime does not take on demand: pulls that work, no init, no freezer."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.containers.docker import Frames, split_image
from agent.containers.registry import auth_for, registry_of
from agent.containers.spec import (
    ContainerLimits,
    NoContainer,
    Runtime,
    create_body,
    gpu_request,
    gpu_way,
    shut_in,
)
from agent.environment import places_for
from agent.events import Exited, Signal, Started, StartFailed
from agent.runtimes import Containers
from agent.shims import ShimProgram
from core.containers import ContainerRules, are_mounts, rules_of
from stores.local import LocalStore
from tests.agent.fake_docker import FakeDocker
from tests.agent.runner_rig import RunnerRig, no_token, order_for

ME = "vm"


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[FakeDocker]:
    with FakeDocker(tmp_path / "d.sock") as fake:
        yield fake


@pytest.mark.slow
async def test_image_is_pulled_once_it_is_missed(docker: FakeDocker, tmp_path: Path) -> None:
    """An image that is not here is pulled, as whom the VM's settings say, then run."""
    settings = tmp_path / "root" / ".docker"
    settings.mkdir(parents=True)
    entry = {"auth": base64.b64encode(b"ada:secret:word").decode()}
    (settings / "config.json").write_text(json.dumps({"auths": {"r.example:5000": entry}}))
    rig = RunnerRig(tmp_path, docker=docker.address, image="r.example:5000/team/x:v1")
    rig.environ["HOME"] = str(tmp_path / "root")
    rig.start("true")
    assert await rig.next() == Started("lease-1")
    assert await rig.next() == Exited("lease-1", 0, "exit code 0")
    assert await rig.log() == "hello\n"
    [auth] = docker.auth
    assert auth is not None
    said = json.loads(base64.urlsafe_b64decode(auth))
    assert said == {"username": "ada", "password": "secret:word", "serveraddress": "r.example:5000"}
    assert not docker.exists


@pytest.mark.slow
async def test_refused_pull_is_the_reason(docker: FakeDocker, tmp_path: Path) -> None:
    """A registry's refusal comes in the middle of an answer that began well."""
    docker.pull_says.append({"error": "denied: you may not"})
    rig = RunnerRig(tmp_path, docker=docker.address, image="x/y")
    rig.start("true")
    why = "image x/y cannot be pulled: denied: you may not"
    assert await rig.next() == StartFailed("lease-1", 125, why)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["create", "start"])
async def test_runtime_without_init(docker: FakeDocker, tmp_path: Path, where: str) -> None:
    """A runtime that has no first process of its own runs the job without one."""
    docker.no_init_at = where
    rig = RunnerRig(tmp_path, docker=docker.address, image="here")
    rig.start("true")
    assert (await rig.end()).exit_code == 0
    assert docker.created[-1]["HostConfig"]["Init"] is False


@pytest.mark.slow
async def test_end_that_is_not_yet_known(docker: FakeDocker, tmp_path: Path) -> None:
    """A runtime that says 0 before it knows the exit code makes no success of a failure."""
    docker.exit_code, docker.unsure = 7, 4
    rig = RunnerRig(tmp_path, docker=docker.address, image="here")
    rig.start("true")
    assert (await rig.end()).exit_code == 7


@pytest.mark.slow
async def test_end_that_the_runtime_notices_late(docker: FakeDocker, tmp_path: Path) -> None:
    """A container whose stream has ended is not attached to again because it is still called
    running: podman would make one that has just ended anew, and its exit code would be gone."""
    docker.exit_code, docker.lags = 7, 4
    rig = RunnerRig(tmp_path, docker=docker.address, image="here")
    rig.start("true")
    assert (await rig.end()).exit_code == 7
    assert not docker.forgot


@pytest.mark.slow
async def test_end_that_is_never_known(
    docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an exit code it is a loss, with its reason: neither a success nor the job's fault."""
    impatient = "import agent.containers.shim as k\nk.UNSURE_MAX_S = 0.1\n"
    *words, script = Containers.shim.words
    program = ShimProgram((*words, _before_main(script, impatient)), by_server=False)
    monkeypatch.setattr(Containers, "shim", program)
    docker.unsure = 1_000_000
    rig = RunnerRig(tmp_path, docker=docker.address, image="here")
    rig.start("true")
    why = "the container runtime lost the exit code (status: created)"
    assert await rig.end() == Exited("lease-1", None, why)
    assert not docker.exists


def _before_main(script: str, words: str) -> str:
    head, mark, tail = script.partition("from agent.containers.shim")
    assert mark
    return f"{head}{words}{mark}{tail}"


@pytest.mark.slow
async def test_runtime_that_dies_at_the_start(docker: FakeDocker, tmp_path: Path) -> None:
    """A runtime that falls silent while it starts a container is not the image's fault."""
    docker.dies_at_start = True
    rig = RunnerRig(tmp_path, docker=docker.address, image="here")
    rig.start("true")
    end = await rig.end()
    assert isinstance(end, Exited)
    assert end.exit_code is None
    assert end.reason.startswith("the container runtime does not answer: ")
    assert not docker.exists


@pytest.mark.slow
async def test_what_cannot_be_frozen_is_ended(docker: FakeDocker, tmp_path: Path) -> None:
    """Better lost than computed twice: without a freezer the container is removed."""
    docker.runs_on, docker.pause_fails = True, True
    rig = RunnerRig(tmp_path, docker=docker.address, image="here")
    rig.start("true")
    await rig.said("hello")
    rig.runner.signal("lease-1", Signal.STOP)
    end = await rig.end()
    assert end.exit_code == 137
    assert "it could not be paused, so it was ended: cannot freeze" in end.reason
    assert not docker.exists


# --- what is asked of a runtime, without one ------------------------------------------------


def test_body_of_a_container(tmp_path: Path) -> None:
    """What the job asked for and what the operator grants, in Docker's words."""
    order = order_for("python3", "train.py")
    spec = replace(order.spec, image="i", memory_mb=512, cpu_cores=1.5, environment={"A": "b"})
    order = replace(order, spec=spec)
    places = places_for(order, tmp_path / "vm", LocalStore(tmp_path / "store"))
    places.make(for_anybody=True)
    rules = ContainerRules(("/mnt/a:/a", "/mnt/b:/b:rw"), "bridge")
    body = create_body(order, places, rules, ME, "nvidia", {})
    host = body["HostConfig"]
    assert isinstance(host, dict)
    assert (body["Entrypoint"], body["Cmd"]) == (["python3", "train.py"], [])
    assert (host["Memory"], host["NanoCpus"]) == (512 * 1024**2, 1_500_000_000)
    assert host["NetworkMode"] == "bridge"
    shut = shut_in(body, ContainerLimits(7, 1234))
    bounds = shut["HostConfig"]
    assert isinstance(bounds, dict)
    assert (bounds["CapDrop"], bounds["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
    assert (bounds["PidsLimit"], shut["User"]) == (7, "1234:1234")
    assert "User" not in shut_in(body, ContainerLimits(7))
    assert host["Binds"] == [
        f"{places.base}:/zen:rw",
        f"{places.checkpoints}:/zen/checkpoints:rw",
        "/mnt/a:/a:ro",
        "/mnt/b:/b:rw",
    ]
    env = dict(pair.split("=", 1) for pair in body["Env"])  # type: ignore[attr-defined]
    assert (env["A"], env["ZEN_OUTPUT_DIR"]) == ("b", "/zen/outputs")
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1", "slots 1 and 3 are 0 and 1 inside"
    plain = create_body(order, places, rules, ME, "", {})
    assert "CUDA_VISIBLE_DEVICES=1,3" in plain["Env"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("info", "cdi", "way", "asked"),
    [
        (
            {"Runtimes": {"runc": {}, "nvidia": {}}},
            False,
            "nvidia",
            {"DeviceRequests": [
                {"Driver": "nvidia", "DeviceIDs": ["1", "3"], "Capabilities": [["gpu"]]}
            ]},
        ),
        (
            {"Runtimes": {"runc": {}}, "CDISpecDirs": ["/etc/cdi"]},
            True,
            "cdi",
            {"DeviceRequests": [
                {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1", "nvidia.com/gpu=3"]}
            ]},
        ),
        (
            {"Runtimes": {"runc": {}}},
            True,
            "cdi-device",
            {"Devices": [{"PathOnHost": "nvidia.com/gpu=1"}, {"PathOnHost": "nvidia.com/gpu=3"}]},
        ),
        ({"Runtimes": {"runc": {}}}, False, "", {}),
    ],
)  # fmt: skip
def test_gpus(info: dict[str, object], cdi: bool, way: str, asked: dict[str, object]) -> None:
    """Each runtime is asked for the job's own GPUs in its own way."""
    assert gpu_way(info, cdi=cdi) == way
    assert gpu_request(way, (1, 3)) == asked


@pytest.mark.slow
async def test_real_gpus_need_a_way(docker: FakeDocker, tmp_path: Path) -> None:
    """Where there are GPUs, a container without them is refused, not run in silence."""
    docker.exists = True  # so that its /info answers something
    environ = {"DOCKER_HOST": docker.address}
    runtime = Runtime(environ, ME, ContainerRules(), real_gpus=True, token=no_token)
    order = order_for("true")
    places = places_for(order, tmp_path, LocalStore(tmp_path))
    with pytest.raises(NoContainer, match="cannot hand out GPUs"):
        await runtime.brief(order, places, ContainerLimits(100))


@pytest.mark.parametrize(
    ("image", "name", "tag"),
    [
        ("a", "a", "latest"),
        ("a:b", "a", "b"),
        ("h:5000/a", "h:5000/a", "latest"),
        ("h:5000/a/b:c", "h:5000/a/b", "c"),
        ("a@sha256:00", "a@sha256:00", ""),
    ],
)
def test_tags(image: str, name: str, tag: str) -> None:
    """An image without a tag is the newest, not all of them."""
    assert split_image(image) == (name, tag)


async def test_google_registries_get_the_vms_token() -> None:
    """Only Google's own hosts ever see the VM's token."""

    async def token() -> str:
        return "t0ken"

    for image in ("us-docker.pkg.dev/p/r/i:1", "gcr.io/p/i", "eu.gcr.io/p/i"):
        said = json.loads(base64.urlsafe_b64decode(await auth_for(image, {}, token)))
        assert (said["username"], said["password"]) == ("oauth2accesstoken", "t0ken")
        assert await auth_for(image, {}, no_token) == ""
    for image in (
        "python:3.12",
        "pkg.dev.evil.example/x",
        "notgcr.io/x",
        "localhost/gcr.io",
        "a/b",
    ):
        assert await auth_for(image, {}, token) == ""
    assert registry_of("localhost:5/x") == "localhost:5"


@pytest.mark.parametrize(
    "mounts",
    ["/a:/b", ["a:/b"], ["/a:b"], ["/a"], ["/a:/"], ["/a:/zen"], ["/a:/zen/x"], ["/a:/x/../zen"],
     ["/a:/b:rx"], [3], ["/a:/b"] * 33],
)  # fmt: skip
def test_mounts_that_are_refused(mounts: object) -> None:
    """A mount is two paths; none covers the job's own places."""
    assert not are_mounts(mounts)
    assert rules_of({"mounts": mounts}) is None


def test_rules_from_metadata() -> None:
    """What the template says is what containers get; nothing said is the default."""
    assert rules_of({}) == ContainerRules()
    assert rules_of({"mounts": ["/a:/b:rw"], "network": "none"}) == ContainerRules(
        ("/a:/b:rw",), "none"
    )
    assert rules_of({"network": "moon"}) is rules_of([]) is None


def test_podmans_own_complaint_is_not_the_jobs() -> None:
    """It comes in a frame like any other; words of the job that look alike stay."""

    def frame(words: bytes) -> bytes:
        return struct.pack(">BxxxL", 2, len(words)) + words

    complaint = (
        b"error: read unixpacket @->/proc/self/fd/9/attach: read: connection reset by peer\n"
    )
    said = [b"1\n", complaint, b"my own: connection reset by peer\n"]
    assert Frames().feed(b"".join(map(frame, said))) == said[0] + said[2]
