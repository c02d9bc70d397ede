"""Who this VM is and how it is set up, from the instance metadata server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Protocol, TypeVar
from urllib.parse import urlencode

from core.containers import MOUNTS_WORDS, ContainerRules, rules_of
from core.errors import BadInput, Fault, ZenError
from core.sandbox import SANDBOX_WORDS, SandboxRules, sandbox_of
from core.submission import shown
from core.timers import Timers

DEFAULT_HOST = "metadata.google.internal"
ROOT = "/computeMetadata/v1/"
ANSWER_BYTES_MAX = 1024 * 1024
CALL_TIMEOUT_S = 5.0
BOOT_WAIT_S = 30.0
"""The network of a VM comes up while we do."""
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 5.0
LONG_POLL_S = 60
WATCH_PAUSE_MAX_S = 1.0
"""A spot VM has 30 s from the notice to its end."""
LAST_LOOK_S = 1.0
"""How long a VM that is told to go may ask why: its seconds belong to the jobs."""
PREEMPTED = "instance/preempted"
MAINTENANCE = "instance/maintenance-event"
IDENTITY = "instance/service-accounts/default/identity"
STOPPED_FOR_MAINTENANCE = "TERMINATE_ON_HOST_MAINTENANCE"
"""What VMs with GPUs are told: they cannot move to another host, they are stopped."""
GPUS_MAX = 64
TIMERS = (
    "heartbeat_s",
    "publish_timeout_s",
    "self_stop_after_s",
    "frozen_max_s",
    "agent_idle_off_s",
    "stop_grace_s",
)
_Rules = TypeVar("_Rules")
_INSTANCE = ("name", "id", "zone")
SCHEDULER_KEYS = "zen-scheduler-keys"
"""The scheduler's public keys (messaging/proofs/keys.py), with spaces between them."""
_REQUIRED = ("zen-cluster", "zen-project", "zen-prefix", "zen-store", SCHEDULER_KEYS)
ENROLMENT = "zen-enrolment"
"""The secret that stands for the cloud's word on a machine that no cloud made: the deployment's for
the service that starts workers there, the instance's for a worker."""
PRETEND = "zen-pretend-gpus"
"""Said only to a VM whose GPUs do not exist, by the process that pretends them."""
_OPTIONAL = ("zen-gpus", PRETEND, "zen-pubsub-host", "zen-timers", "zen-containers", "zen-sandbox")
_ADDRESS = "network-interfaces/0/ip"
SETTINGS = "ZEN_VM_SETTINGS"
"""The variable that says all this on a machine that no cloud made: a JSON object of texts."""


class MetadataDown(ZenError):
    """The metadata server does not answer: try again."""

    code = "metadata_unavailable"


@dataclass(frozen=True, slots=True)
class VmSettings:
    """What the instance template and the cloud say about this VM."""

    vm_name: str
    instance_id: str
    zone: str
    cluster: str
    project: str
    prefix: str
    store: str
    gpus: int
    """As many as the machine type has."""
    pubsub_host: str | None
    """None: Google's own."""
    timers: Timers
    scheduler_keys: str
    """Whose orders this VM takes: public keys, with spaces between them."""
    address: str = ""
    """Where other VMs of its network reach it."""
    containers: ContainerRules = field(default_factory=ContainerRules)
    sandbox: SandboxRules = field(default_factory=SandboxRules)
    pretend_gpus: bool = False
    """Its GPUs exist by agreement: a pretend VM."""
    enrolment: str = field(default="", repr=False)
    """On a machine that no cloud made: the secret of this instance."""


class IdentitySource(Protocol):
    """Where a worker learns who it is and when it has to go."""

    async def settings(self) -> VmSettings:
        """Everything, or BadInput with every fault."""
        ...

    async def watch_preempted(self, notice: Callable[[str], None]) -> None:
        """Calls `notice` when the VM is to be taken away, with what takes it (empty: a reclaim of a
        spot VM), and ends. Never ends by an error."""
        ...

    async def is_preempted(self) -> bool:
        """Whether the VM is being reclaimed at this moment. Answers within LAST_LOOK_S."""
        ...

    async def is_spot(self) -> bool:
        """Whether the cloud may reclaim the VM. Answers within LAST_LOOK_S."""
        ...

    async def token(self) -> str:
        """An access token of the VM's service account; empty if it has none."""
        ...

    async def identity_token(self, audience: str) -> str:
        """The cloud's signed word for whom this VM is, made for the audience and valid for an hour;
        empty where no cloud vouches for the machine. Patient, as settings() is: MetadataDown."""
        ...


@dataclass(frozen=True, slots=True)
class FixedMachine:
    """A machine of a static pool: its settings came with its environment, and nobody takes it."""

    text: str

    async def settings(self) -> VmSettings:
        try:
            values = json.loads(self.text)
        except ValueError:
            values = None
        if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
            raise BadInput([Fault(SETTINGS, shown(self.text), "a JSON object of texts")])
        return parse_settings(values)

    async def watch_preempted(self, _: Callable[[str], None]) -> None:
        return

    async def is_preempted(self) -> bool:
        return False

    async def is_spot(self) -> bool:
        return False

    async def token(self) -> str:
        return ""

    async def identity_token(self, audience: str) -> str:  # noqa: ARG002  # nobody signs here
        return ""


def source(environ: Mapping[str, str]) -> IdentitySource:
    """What the environment says, else the cloud's metadata server."""
    said = environ.get(SETTINGS)
    return FixedMachine(said) if said is not None else MetadataClient()


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """One HTTP answer."""

    status: int
    etag: str
    body: str


class MetadataClient:
    """Plain HTTP over asyncio streams: an HTTP library would double the agent's size."""

    def __init__(self, host: str | None = None) -> None:
        address = host or os.environ.get("GCE_METADATA_HOST") or DEFAULT_HOST
        self._host, _, port = address.partition(":")
        self._port = int(port or 80)
        self._header_host = address

    async def get(self, path: str, timeout_s: float = CALL_TIMEOUT_S) -> MetadataResponse:
        """The answer, also if it is 404. MetadataDown if there is none."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(path)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            detail = str(error) or type(error).__name__
            raise MetadataDown(f"{self._header_host}{ROOT}{path}: {detail}") from error

    async def _exchange(self, path: str) -> MetadataResponse:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(
                f"GET {ROOT}{path} HTTP/1.1\r\nHost: {self._header_host}\r\n"
                "Metadata-Flavor: Google\r\nConnection: close\r\n\r\n".encode()
            )
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in map(_colon, lines)}
            body = await _body(reader, headers)
            return MetadataResponse(int(first.split()[1]), headers.get("etag", ""), body.decode())
        finally:
            writer.close()

    async def settings(self) -> VmSettings:
        """Everything, or BadInput with every fault."""
        wanted = [*_INSTANCE, _ADDRESS, *(f"attributes/{name}" for name in _REQUIRED + _OPTIONAL)]
        answers = await asyncio.gather(*(self._patiently(f"instance/{path}") for path in wanted))
        values = {
            path.removeprefix("attributes/"): answer.body.strip()
            for path, answer in zip(wanted, answers, strict=True)
            if answer.status == 200
        }
        return parse_settings(values)

    async def token(self) -> str:
        try:
            answer = await self.get("instance/service-accounts/default/token")
            said = json.loads(answer.body) if answer.status == 200 else {}
        except (MetadataDown, ValueError):
            said = {}
        return str(said.get("access_token", "")) if isinstance(said, dict) else ""

    async def identity_token(self, audience: str) -> str:
        query = urlencode({"audience": audience, "format": "full"})
        answer = await self._patiently(f"{IDENTITY}?{query}")
        return answer.body.strip() if answer.status == 200 else ""

    async def _patiently(self, path: str) -> MetadataResponse:
        loop = asyncio.get_running_loop()
        give_up_at, pause_s = loop.time() + BOOT_WAIT_S, RETRY_FIRST_S
        while True:
            try:
                answer = await self.get(path)
            except MetadataDown:
                if loop.time() >= give_up_at:
                    raise
            else:
                if answer.status in (200, 404):
                    return answer
                if loop.time() >= give_up_at:
                    raise MetadataDown(f"{path}: HTTP status {answer.status}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def is_preempted(self) -> bool:
        return await self._says_true(PREEMPTED)

    async def is_spot(self) -> bool:
        return await self._says_true("instance/scheduling/preemptible")

    async def _says_true(self, path: str) -> bool:
        try:
            answer = await self.get(path, LAST_LOOK_S)
        except MetadataDown:
            return False
        return answer.status == 200 and answer.body.strip() == "TRUE"

    async def watch_preempted(self, notice: Callable[[str], None]) -> None:
        """Reclaims, and maintenance of the host that stops the VM. Ends with the first of them."""
        wanted = {
            (PREEMPTED, "TRUE"): "",
            (MAINTENANCE, STOPPED_FOR_MAINTENANCE): "host maintenance: the cloud stops it",
        }
        watches = {asyncio.create_task(self._watch(*key)): why for key, why in wanted.items()}
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watch in watches:
                watch.cancel()
        for watch in done:
            watch.result()
            notice(watches[watch])

    async def _watch(self, what: str, wanted: str) -> None:
        """Until the value is the wanted one. Never ends by an error."""
        etag, pause_s = "", RETRY_FIRST_S
        while True:
            # The first look does not wait: the notice may be older than we are.
            wait = {"wait_for_change": "true", "last_etag": etag, "timeout_sec": LONG_POLL_S}
            path = what + (f"?{urlencode(wait)}" if etag else "")
            try:
                answer = await self.get(path, LONG_POLL_S + CALL_TIMEOUT_S)
            except MetadataDown:
                answer = MetadataResponse(503, etag, "")
            if answer.status == 200 and answer.body.strip() == wanted:
                return
            if answer.status == 200 and answer.etag != etag:
                etag, pause_s = answer.etag, RETRY_FIRST_S
                continue
            # Nothing new, no answer, or a server that does not wait: ask again, but not in a rush.
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, WATCH_PAUSE_MAX_S)


def parse_settings(values: Mapping[str, str]) -> VmSettings:
    """The texts of the metadata server as settings, or BadInput with every fault."""
    names = [*_INSTANCE, *_REQUIRED]
    faults = [
        Fault(f"metadata {name}", "nothing", "a value") for name in names if not values.get(name)
    ]
    gpus = _gpus(values.get("zen-gpus", "0"), faults)
    pretend = _flag(PRETEND, values.get(PRETEND, ""), faults)
    timers = _timers(values.get("zen-timers", "{}"), faults)
    containers = _containers(values.get("zen-containers", "{}"), faults)
    sandbox = _sandbox(values.get("zen-sandbox", "{}"), faults)
    if faults:
        raise BadInput(faults)
    return VmSettings(
        vm_name=values["name"],
        instance_id=values["id"],
        zone=values["zone"].rpartition("/")[2],
        cluster=values["zen-cluster"],
        project=values["zen-project"],
        prefix=values["zen-prefix"],
        store=values["zen-store"],
        gpus=gpus,
        pubsub_host=values.get("zen-pubsub-host") or None,
        timers=timers,
        scheduler_keys=values[SCHEDULER_KEYS],
        address=values.get(_ADDRESS, ""),
        containers=containers,
        sandbox=sandbox,
        pretend_gpus=pretend,
        enrolment=values.get(ENROLMENT, ""),
    )


def _gpus(text: str, faults: list[Fault]) -> int:
    if text.isascii() and text.isdigit() and int(text) <= GPUS_MAX:
        return int(text)
    faults.append(Fault("metadata zen-gpus", shown(text), f"a whole number from 0 to {GPUS_MAX}"))
    return 0


def _flag(name: str, text: str, faults: list[Fault]) -> bool:
    if text not in ("", "true", "false"):
        faults.append(Fault(f"metadata {name}", shown(text), "true or false"))
    return text == "true"


def _containers(text: str, faults: list[Fault]) -> ContainerRules:
    expected = f"a JSON object with mounts ({MOUNTS_WORDS}), network and user"
    return _rules("zen-containers", text, rules_of, expected, faults) or ContainerRules()


def _sandbox(text: str, faults: list[Fault]) -> SandboxRules:
    return _rules("zen-sandbox", text, sandbox_of, SANDBOX_WORDS, faults) or SandboxRules()


def _rules(
    name: str,
    text: str,
    parse: Callable[[object], _Rules | None],
    expected: str,
    faults: list[Fault],
) -> _Rules | None:
    try:
        rules = parse(json.loads(text or "{}"))
    except ValueError:
        rules = None
    if rules is None:
        faults.append(Fault(f"metadata {name}", shown(text), expected))
    return rules


def _timers(text: str, faults: list[Fault]) -> Timers:
    expected = f"a JSON object with any of {', '.join(TIMERS)}, each a number above 0"
    try:
        given = json.loads(text or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        faults.append(Fault("metadata zen-timers", shown(text), expected))
        return Timers()
    known = {timer.name for timer in fields(Timers)} & set(TIMERS)
    wrong = {
        name: value
        for name, value in given.items()
        if name not in known or isinstance(value, bool) or not isinstance(value, int | float)
        or not 0 < value < float("inf")
    }  # fmt: skip
    if wrong:
        faults.append(Fault("metadata zen-timers", shown(wrong), expected))
        return Timers()
    return replace(Timers(), **{name: float(value) for name, value in given.items()})


def _colon(line: str) -> tuple[str, str, str]:
    return line.partition(":")


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunked(reader)
    if "content-length" in headers:
        length = int(headers["content-length"])
        if length > ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of {length} bytes, expected at most {ANSWER_BYTES_MAX}")
        return await reader.readexactly(length)
    return await reader.read(ANSWER_BYTES_MAX)


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if len(body) + size > ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        chunk = await reader.readexactly(size + 2)
        if size == 0:
            return body
        body += chunk[:-2]
