"""Bytes <-> core.messages, pure. Whatever cannot be used raises BadMessage with the field in it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, assert_never

from core.messages import (
    NOTHING_READ,
    READINGS,
    Canary,
    ContinueJob,
    Control,
    DrainVm,
    GoJob,
    GpuReading,
    Heartbeat,
    HeartbeatStatus,
    InMessage,
    Introduction,
    KeepWarm,
    OutMessage,
    Peer,
    Progress,
    RenewTokens,
    ResizeJob,
    Size,
    StartJob,
    StopJob,
    VmReadings,
)
from core.names import Names, parse_cluster
from core.submission import shown
from core.worker_identity import KEY_BYTES, WorkerPublicKeys
from messaging import wire
from messaging.errors import BadMessage
from messaging.proofs.texts import BadKey, from_text, to_text
from messaging.token_parts import tokens_from

__all__ = [
    "SECRETS",
    "BadMessage",
    "decode_control",
    "decode_heartbeat",
    "decode_submission",
    "decode_v1_order",
    "encode_canary",
    "encode_control",
    "encode_for",
    "encode_heartbeat",
    "encode_start_v1",
    "encode_stop_v1",
    "start_lease",
    "wanted_secrets",
    "with_secrets",
]

REASON_CHARS_MAX = 2000
GPU_FAULT_CHARS_MAX = 200
_NOTE_PREFIX = "wf-"
_NO_NOTE: Mapping[str, object] = {}
_STATUSES = {str(status): status for status in HeartbeatStatus}
_VM_STATUSES = frozenset(
    {
        HeartbeatStatus.READY,
        HeartbeatStatus.DRAINED,
        HeartbeatStatus.PREEMPTED,
        HeartbeatStatus.UNREADY,
    }
)
_V2_STATUSES = _VM_STATUSES | {HeartbeatStatus.FROZEN}
_PLAIN_READINGS = tuple(name for name in READINGS if name != "gpus")
"""Readings that stand on the wire as they are."""
SECRETS = "secrets"
"""In the outbox alone: an attribute of starts whose secrets are put in when they are sent."""
_RESOLVE = "resolve"
_ATTEMPT = ("job_id", "user_id", "attempt", "lease_id")
_TOKENS_OF = (*_ATTEMPT, "tenant_id", "rank")
_ORDERS: Mapping[str, tuple[type[StopJob | ContinueJob | GoJob], tuple[str, ...]]] = {
    "stop": (StopJob, ("grace_s", "reason")),
    "continue": (ContinueJob, ("answers",)),
    "go": (GoJob, ()),
}
"""Orders about one attempt: what each says beside the attempt."""
_NUM_GPUS_AS_TEXT = "torchtunewrapper"
_JOB_OBJECT = ("job_id", "user_id", "workflow", "args", "gpu_type", "num_gpus", "keep_alive")
"""What workers of either version are told of a job."""


# --- control: scheduler -> one v2 VM ----------------------------------------------------


def encode_control(message: Control, names: Names) -> OutMessage:
    """The message for one VM; the ordering key keeps a VM's starts and stops in order."""
    kind, body = _control_body(message)
    attributes = {"vm_name": message.vm_name, "kind": kind, "boot_nonce": message.boot_nonce}
    if isinstance(message, StartJob) and message.spec.secrets:
        attributes[SECRETS] = _RESOLVE
    return OutMessage(
        topic=names.control_topic,
        body=wire.to_bytes(f"control {kind}", body),
        attributes=attributes,
        ordering_key=message.vm_name,
    )


def decode_control(message: InMessage) -> Control:
    """What the VM is told. Whether it is for this VM and this boot is the agent's own check."""
    vm_name = wire.attribute(message.attributes, "vm_name")
    kind = wire.attribute(message.attributes, "kind")
    # A stop is fenced by its lease alone: its sender need not know the VM's boot.
    boot_nonce = message.attributes.get("boot_nonce", "")
    if kind != "stop":
        boot_nonce = wire.attribute(message.attributes, "boot_nonce")
    to: dict[str, Any] = {"vm_name": vm_name, "boot_nonce": boot_nonce}
    match kind:
        case "start":
            return _start(message.body, vm_name, boot_nonce)
        case "stop" | "continue" | "go":
            order = wire.from_bytes(message.body, wire.WireOrder)
            known, more = _ORDERS[kind]
            return known(**to, **{name: getattr(order, name) for name in (*_ATTEMPT, *more)})
        case "resize":
            news = wire.from_bytes(message.body, wire.WireResize)
            named = {name: getattr(news, name) for name in _ATTEMPT}
            return ResizeJob(**to, **named, size=_size(news.size))
        case "tokens":
            fresh = wire.from_bytes(message.body, wire.WireTokens)
            named = {name: getattr(fresh, name) for name in _TOKENS_OF}
            return RenewTokens(**to, **named, tokens=tokens_from(fresh.tokens))
        case "drain":
            return DrainVm(**to, reason=wire.from_bytes(message.body, wire.WireDrain).reason)
        case "keep":
            return KeepWarm(**to)
        case _:
            expected = "start, stop, continue, go, resize, tokens, drain or keep"
            raise BadMessage(f"attributes.kind: got {shown(kind)}, expected {expected}")


def _control_body(message: Control) -> tuple[str, Mapping[str, object]]:
    match message:
        case StartJob():
            return "start", _start_body(message)
        case StopJob():
            return "stop", _order_body(message, "stop")
        case ContinueJob():
            return "continue", _order_body(message, "continue")
        case GoJob():
            return "go", _order_body(message, "go")
        case ResizeJob():
            named = {name: getattr(message, name) for name in _ATTEMPT}
            return "resize", {**named, "size": _size_body(message.size)}
        case RenewTokens():
            return "tokens", {name: getattr(message, name) for name in _TOKENS_OF}
        case DrainVm():
            return "drain", {"reason": message.reason}
        case KeepWarm():
            return "keep", {}
        case _:
            assert_never(message)


def _order_body(message: StopJob | ContinueJob | GoJob, kind: str) -> dict[str, object]:
    return {name: getattr(message, name) for name in (*_ATTEMPT, *_ORDERS[kind][1])}


def _size_body(size: Size) -> dict[str, object]:
    return {
        "generation": size.generation,
        "min": size.least,
        "max": size.most,
        "members": [{"rank": peer.rank, "address": peer.address} for peer in size.members],
    }


def _size(body: wire.WireSize) -> Size:
    members = tuple(Peer(peer.rank, peer.address) for peer in body.members)
    return Size(body.generation, body.min, body.max, members)


def _start_body(start: StartJob) -> dict[str, object]:
    """The v1 job object first. The order is pinned: equal starts are equal bytes."""
    words = wire.spec_words(start.spec)
    signal = words.pop("resize_signal")
    body = {name: words.pop(name) for name in _JOB_OBJECT}
    body |= {
        "attempt": start.attempt,
        "lease_id": start.lease_id,
        "slots": start.slots,
        "rank": start.rank,
        "world_size": start.world_size,
        "leader_address": start.leader_address,
    }
    body |= {name: words.pop(name) for name in ("env", "command", "shell", "tenant_id")}
    body |= {"cluster": start.cluster, "region": start.region}
    body |= {name: words.pop(name) for name in ("stop_grace_s", "max_runtime_s", "name")}
    body |= {"resume": start.resume, "barrier": start.barrier, **words}
    if start.size is not None:
        body |= {"size": _size_body(start.size), "resize_signal": signal}
    if start.user_draw:
        body |= {"user_draw": start.user_draw}
    return {**body, "spec_version": 2}


def _start(data: bytes, vm_name: str, boot_nonce: str) -> StartJob:
    spec, body = wire.spec_from_bytes(data), wire.from_bytes(data, wire.WireStart)
    return StartJob(
        vm_name=vm_name,
        boot_nonce=boot_nonce,
        spec=spec,
        cluster=body.cluster,
        region=body.region,
        attempt=body.attempt,
        lease_id=body.lease_id,
        slots=tuple(body.slots),
        rank=body.rank,
        world_size=body.world_size,
        leader_address=body.leader_address,
        resume=body.resume,
        barrier=body.barrier,
        size=_size(body.size) if body.size is not None else None,
        user_draw=body.user_draw,
        secret_values=body.secret_values,
        tokens=tokens_from(body.tokens),
    )


# --- start and stop: scheduler -> v1 VMs ------------------------------------------------


def encode_start_v1(start: StartJob, names: Names) -> OutMessage:
    """A start for whichever v1 VM of the cluster pulls it first."""
    spec = start.spec
    words = wire.spec_words(spec)
    body = {name: words[name] for name in _JOB_OBJECT}
    args = {**spec.workflow_args, "job_id": spec.job_id, "user_id": spec.user_id}
    override_env = args.pop("override_env", None)
    if spec.workflow == _NUM_GPUS_AS_TEXT:
        args["num_gpus"] = str(spec.gpu_count)
    # v1 workers expect a GPU type even when the submitter left the choice to us.
    body |= {"args": args, "gpu_type": spec.gpu_type or parse_cluster(start.cluster)[1]}
    if override_env is not None:
        body["override_env"] = override_env
    # The workers read both from here, as their own scheduler sends a whole job object.
    body["gcp"] = {"keep_alive": spec.keep_alive, "cluster": start.cluster}
    body |= {"attempt": start.attempt, "lease_id": start.lease_id, "spec_version": 1}
    return OutMessage(
        topic=names.start_topic,
        body=wire.to_bytes("start", body),
        attributes={"cluster": start.cluster},
    )


def encode_stop_v1(job_id: str, vm_name: str, names: Names) -> OutMessage:
    """A stop that every v1 VM may see; the one that runs the job keeps it."""
    return OutMessage(
        topic=names.stop_topic,
        body=wire.to_bytes("stop", {"action": "stop", "job_id": job_id}),
        attributes={"job_id": job_id, "vm_name": vm_name},
    )


def encode_for(message: Control, names: Names, v1: Collection[str]) -> OutMessage:
    """In the words of the worker on that VM; `v1`: clusters with v1 workers."""
    if isinstance(message, StartJob) and message.cluster in v1:
        return encode_start_v1(message, names)
    if isinstance(message, StopJob) and any(names.is_vm_of(c, message.vm_name) for c in v1):
        return encode_stop_v1(message.job_id, message.vm_name, names)
    return encode_control(message, names)


def decode_v1_order(message: InMessage) -> wire.WireV1Order:
    """What tells a start or a stop for v1 workers from others of its kind."""
    return wire.from_bytes(message.body, wire.WireV1Order)


def wanted_secrets(message: OutMessage) -> tuple[str, Mapping[str, str]]:
    """(tenant, variable → reference) of a start that is to be sent."""
    body = wire.from_bytes(message.body, wire.WireSecrets)
    return body.tenant_id, body.secrets


def with_secrets(message: OutMessage, values: Mapping[str, str]) -> OutMessage:
    """The start as its VM gets it. Nobody else may: it is sealed before it is sent."""
    body = wire.from_bytes(message.body, dict[str, object])
    attributes = {name: word for name, word in message.attributes.items() if name != SECRETS}
    data = wire.to_bytes("control start", {**body, "secret_values": values})
    return replace(message, body=data, attributes=attributes)


def start_lease(message: OutMessage) -> str:
    """The lease that a start message of either version is about; empty: it is no start."""
    if message.attributes.get("kind", "start") != "start":
        return ""
    try:
        order = wire.from_bytes(message.body, wire.WireV1Order, len(message.body))
    except BadMessage:
        return ""
    return order.lease_id if order.action == "start" else ""


# --- heartbeats: VM -> scheduler --------------------------------------------------------


def encode_heartbeat(heartbeat: Heartbeat, names: Names) -> OutMessage:
    """A heartbeat. Fields at their default are left out: there is one of these per VM every 10
    s."""
    body = wire.WireHeartbeat(
        status=str(heartbeat.status),
        vm_name=heartbeat.vm_name,
        job_id=heartbeat.job_id,
        user_id=heartbeat.user_id if heartbeat.job_id is not None else None,
    )
    if heartbeat.version >= 2:
        _add_v2(body, heartbeat)
    body.timestamp = _scalar(heartbeat.note.get("timestamp"))
    body.elapsed_time_s = _scalar(heartbeat.note.get("elapsed_time_s"))
    return OutMessage(
        topic=names.heartbeat_topic,
        body=wire.to_bytes("heartbeat", body),
        attributes={"vm_name": heartbeat.vm_name, "kind": "heartbeat"},
    )


def encode_canary(canary: Canary, names: Names) -> OutMessage:
    """The leader's own heartbeat; it travels with the others, so its delay is theirs."""
    return OutMessage(
        topic=names.heartbeat_topic,
        body=wire.to_bytes("canary", {"term": canary.term, "seq": canary.seq}),
        attributes={"kind": "canary"},
    )


def decode_heartbeat(message: InMessage) -> Heartbeat | Canary:
    """A heartbeat of either version, or the canary."""
    if message.attributes.get("kind") == "canary":
        canary = wire.from_bytes(message.body, wire.WireCanary, wire.HEARTBEAT_BYTES_MAX)
        return Canary(term=canary.term, seq=canary.seq)
    body = wire.from_bytes(message.body, wire.WireHeartbeat, wire.HEARTBEAT_BYTES_MAX)
    status = _status(body.status)
    version = 2 if _is_v2(body, status) else 1
    _check_heartbeat(body, status, version)
    return Heartbeat(
        status=status,
        vm_name=body.vm_name,
        job_id=body.job_id,
        user_id=body.user_id or "0",
        version=version,
        attempt=body.attempt,
        lease_id=body.lease_id,
        seq=body.seq,
        instance_id=body.instance_id,
        boot_nonce=body.boot_nonce,
        zone=body.zone,
        address=body.address,
        exit_code=body.exit_code,
        reason=body.reason[:REASON_CHARS_MAX],
        progress=Progress(body.progress.step, body.progress.total) if body.progress else None,
        checkpoint_step=body.checkpoint.step if body.checkpoint else None,
        readings=_readings(body),
        note=_note(body),
        introduction=_introduction(body) if body.keys else None,
    )


def _note(body: wire.WireHeartbeat) -> Mapping[str, object]:
    if body.timestamp is None and body.elapsed_time_s is None:
        return _NO_NOTE
    note = {"timestamp": body.timestamp, "elapsed_time_s": body.elapsed_time_s}
    return {name: value for name, value in note.items() if value is not None}


def _introduction(body: wire.WireHeartbeat) -> Introduction:
    try:
        both = from_text(body.keys, 2 * KEY_BYTES)
    except BadKey as error:
        raise BadMessage(f"keys: {error}, expected two public keys") from None
    return Introduction(WorkerPublicKeys(both[:KEY_BYTES], both[KEY_BYTES:]), body.identity_token)


def _readings(body: wire.WireHeartbeat) -> VmReadings:
    if not body.gpus and not _PLAIN_READINGS:
        return NOTHING_READ
    gpus = tuple(
        GpuReading(
            gpu.index,
            gpu.util,
            gpu.temp_c,
            gpu.mem_used_mb,
            gpu.ecc_errors,
            gpu.fault[:GPU_FAULT_CHARS_MAX],
        )
        for gpu in body.gpus
    )
    return VmReadings(gpus, **{name: getattr(body, name) for name in _PLAIN_READINGS})


def _add_v2(body: wire.WireHeartbeat, heartbeat: Heartbeat) -> None:
    body.attempt = heartbeat.attempt
    body.lease_id = heartbeat.lease_id
    body.seq = heartbeat.seq
    body.instance_id = heartbeat.instance_id
    body.boot_nonce = heartbeat.boot_nonce
    body.zone = heartbeat.zone
    body.address = heartbeat.address
    body.exit_code = heartbeat.exit_code
    body.reason = _sendable(heartbeat.reason)
    # JSON has no infinity, and a heartbeat that is refused for one makes a healthy VM look silent.
    if heartbeat.progress is not None and math.isfinite(heartbeat.progress.step):
        body.progress = wire.WireProgress(
            heartbeat.progress.step, _finite_or_none(heartbeat.progress.total)
        )
    if (step := _finite_or_none(heartbeat.checkpoint_step)) is not None:
        body.checkpoint = wire.WireCheckpoint(step)
    body.gpus = [
        wire.WireGpu(
            gpu.index,
            _finite_or_none(gpu.util) or 0.0,
            _finite_or_none(gpu.temp_c) or 0.0,
            _finite_or_none(gpu.mem_used_mb) or 0.0,
            gpu.ecc_errors,
            _sendable(gpu.fault)[:GPU_FAULT_CHARS_MAX],
        )
        for gpu in heartbeat.readings.gpus
    ]
    for name in _PLAIN_READINGS:
        setattr(body, name, getattr(heartbeat.readings, name))
    if heartbeat.introduction is not None:
        keys = heartbeat.introduction.keys
        body.keys = to_text(keys.signing + keys.sealing)
        body.identity_token = heartbeat.introduction.token


def _is_v2(body: wire.WireHeartbeat, status: HeartbeatStatus | str) -> bool:
    signs = body.attempt is not None or body.lease_id or body.boot_nonce
    return bool(signs) or status in _V2_STATUSES


def _check_heartbeat(body: wire.WireHeartbeat, status: HeartbeatStatus | str, version: int) -> None:
    if status in _VM_STATUSES:
        return
    if body.job_id is None:
        raise BadMessage(f"job_id: got nothing, expected the job that is {status}")
    if version == 1:
        return
    for name, there in (("attempt", body.attempt is not None), ("lease_id", bool(body.lease_id))):
        if not there:
            raise BadMessage(
                f"{name}: got nothing, expected a value: a v2 heartbeat of a job proves its lease"
            )


def _status(text: str) -> HeartbeatStatus | str:
    if text.startswith(_NOTE_PREFIX):
        return text
    status = _STATUSES.get(text)
    if status is None:
        known = ", ".join(HeartbeatStatus)
        raise BadMessage(f"status: got {shown(text)}, expected one of {known}, wf-…")
    return status


def _sendable(text: str) -> str:
    """Any words at all, also a file name that is no UTF-8: cut and cleaned rather than refused."""
    clean = text.replace("\0", "").encode(errors="replace").decode()
    return clean[:REASON_CHARS_MAX]


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _scalar(value: object) -> str | int | float | None:
    return value if isinstance(value, str | int | float) else None


# --- submissions ------------------------------------------------------------------------


def decode_submission(message: InMessage) -> object:
    """The JSON object of a submission as plain values; core.submission judges its fields."""
    return wire.from_bytes(message.body, dict[str, object], wire.SUBMISSION_BYTES_MAX)
