"""Other systems' submissions as ours, pure: REST and the Pub/Sub intake share it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.errors import BadInput, Fault
from core.names import BadName, parse_cluster
from core.submission import shown
from core.tenant_settings import CONSENT
from core.tenants import DEFAULT_TENANT

DEFINITION_QUEUE_TIMEOUT_S = 15.0
"""Clients that submit a `definition` expect to learn soon that there is no room."""
V1_ONLY = frozenset({"num_gpus"})
LUM_LABELS: Mapping[str, str] = {"provider": "lum"}
"""By which a job is known that came as one of the Lumino protocol."""
_V1_FIELDS: Mapping[str, str] = {
    "gpu_count": "num_gpus",
    "workflow_args": "args",
    "command": "args",
    # They name no cluster: it is <num_gpus>x<gpu_type>.
    "cluster": "gpu_type, num_gpus",
}
_BY_CLUSTER: Mapping[str, str] = dict.fromkeys(("gpu_type", "gpu_count", "cluster"), "cluster")
_RESOURCES = ("cpu_cores", "memory_mb", "gpu_type", "gpu_count")
_DEFINITION_FIELDS: Mapping[str, str] = {
    **{name: f"definition.resources.{name}" for name in _RESOURCES},
    **{name: f"definition.{name}" for name in ("name", "image", "command", "args", "environment")},
}


# --- v1: the customer API -----------------------------------------------------------------


def is_v1(body: object) -> bool:
    """Whether a message is a v1 job object. Ours has `gpu_count`, and `args` is a list there."""
    return isinstance(body, Mapping) and (
        not V1_ONLY.isdisjoint(body) or isinstance(body.get("args"), Mapping)
    )


def native_of_v1(body: object) -> dict[str, object]:
    """A v1 submission in our fields; what v1 does not know is ignored. Values are judged by the
    one table of fields: nothing is checked twice."""
    given = _object(body, "body")
    gpu_type, count = given.get("gpu_type"), _or(given.get("num_gpus"), 1)
    named = given.get("cluster") if names_cluster(given) else None
    if isinstance(named, str):  # an older client: it names the cluster and nothing else
        gpu_type, count = _of_cluster(named)
    native: dict[str, object] = {
        # Those without a default are always there, so that a missing one is a fault.
        "job_id": given.get("job_id"),
        "workflow": given.get("workflow") or None,
        "gpu_type": gpu_type,
        "user_id": _or(given.get("user_id"), "0"),
        "workflow_args": _or(given.get("args"), {}),
        "gpu_count": count,
        "keep_alive": _or(given.get("keep_alive"), False),
    }
    if isinstance(gpu_type, str) and isinstance(count, int):
        name = named if isinstance(named, str) else f"{count}x{gpu_type}"
        native["cluster"] = name.lower()
    if isinstance(native["workflow"], str) and isinstance(native["workflow_args"], Mapping):
        whose = {"job_id": native["job_id"], "user_id": native["user_id"]}
        native["command"] = workflow_command(
            native["workflow"], {**native["workflow_args"], **whose}
        )
    return native


def native_of_lum(body: object) -> dict[str, object]:
    """A submission for the Lumino protocol in our fields. It need not say which GPUs: then any
    cluster with as many as its arguments say will do."""
    given = _object(body, "body")
    native = native_of_v1(given)
    native["labels"] = LUM_LABELS
    if native["gpu_type"] is None:
        args = given.get("args")
        wanted = args.get("num_gpus") if isinstance(args, Mapping) else None
        native.pop("cluster", None)
        del native["gpu_type"]
        if given.get("num_gpus") is None and str(wanted).isdecimal():
            native["gpu_count"] = int(str(wanted))
    return native


def is_lum(labels: Mapping[str, str]) -> bool:
    """Whether the job came as one of the Lumino protocol."""
    return labels.get("provider") == LUM_LABELS["provider"]


def _of_cluster(name: str) -> tuple[str, int]:
    """GPU type and count; of a name that is none, what makes the submission say so."""
    try:
        gpus, gpu_type = parse_cluster(name.lower())
    except BadName:
        return name, 1
    return gpu_type, gpus


def workflow_command(workflow: str, args: Mapping[str, object]) -> list[str]:
    """What a worker of ours runs: the program of that name, its arguments as options. v1 workers
    have their own way and do not look at it."""
    words = [workflow]
    for name, value in args.items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            words += [f"--{name}", text]
    return words


def names_cluster(body: object) -> bool:
    """An older client says `cluster`; newer ones say gpu_type and num_gpus."""
    return isinstance(body, Mapping) and body.get("gpu_type") is None and "cluster" in body


def v1_refusal(error: BadInput, by_cluster: bool = False) -> BadInput:
    """The same faults in v1's fields. A job without a workflow has no command either: said once."""
    fields = {fault.field for fault in error.faults}
    faults = [f for f in error.faults if f.field != "command" or "workflow" not in fields]
    return _renamed(faults, {**_V1_FIELDS, **(_BY_CLUSTER if by_cluster else {})})


def taken(job_id: str, user_id: str) -> BadInput:
    """v1 calls a repeat an error."""
    expected = f"an id that user {user_id} has not used: job {job_id} already exists"
    return BadInput([Fault("job_id", shown(job_id), expected)])


# --- definition ---------------------------------------------------------------------------


def native_of_definition(body: Mapping[str, object]) -> dict[str, object]:
    """A submission with a `definition` in our fields; what that family does not know is ignored."""
    definition = _object(body.get("definition"), "definition")
    resources = _object(_or(definition.get("resources"), {}), "definition.resources")
    native: dict[str, object] = {
        "name": definition.get("name"),
        "command": definition.get("command"),
        "queue_timeout_s": DEFINITION_QUEUE_TIMEOUT_S,
    }
    for fields, names in ((definition, ("image", "args", "environment")), (resources, _RESOURCES)):
        native |= {name: fields[name] for name in names if fields.get(name) is not None}
    if native["command"] is None and "image" in native:
        del native["command"]  # the image knows what to run
    if "gpu_type" in native:
        native["gpu_type"] = our_gpu_type(native["gpu_type"])
    if native.setdefault("gpu_count", 0) == 0:
        native.pop("gpu_type", None)  # no GPUs unless some are asked for, whatever the type
    return native


_THEIR_TYPES: Mapping[str, str] = {"a100": "a100-40gb", "h100": "h100-80gb"}
"""Their names without the maker's → ours, where ours says how much memory."""
_NAMED_THERE = frozenset({"t4", "v100", "p100", "k80", "a100"})


def our_gpu_type(name: object) -> object:
    """nvidia-t4 → t4, nvidia-a100 → a100-40gb; what is no such name stays as it is."""
    if not isinstance(name, str) or not name.lower().startswith("nvidia-"):
        return name
    kind = name.lower().removeprefix("nvidia-").removeprefix("tesla-")
    return _THEIR_TYPES.get(kind, kind)


def their_gpu_type(name: str) -> str:
    """t4 → nvidia-t4; a type that those clients have no name for keeps ours."""
    kind = next((theirs for theirs, ours in _THEIR_TYPES.items() if ours == name), name)
    return f"nvidia-{kind}" if kind in _NAMED_THERE else name


def definition_refusal(error: BadInput) -> BadInput:
    """The same faults, with the place in the definition."""
    return _renamed(error.faults, _DEFINITION_FIELDS)


# --- both ---------------------------------------------------------------------------------


def _renamed(faults: Sequence[Fault], names: Mapping[str, str]) -> BadInput:
    """One fault per field: two of ours may be one of theirs."""
    first: dict[str, Fault] = {}
    for fault in faults:
        field = names.get(fault.field, fault.field)
        expected = fault.expected + _tenants_word(fault)
        words = fault.words and fault.words + _tenants_word(fault)
        first.setdefault(field, replace(fault, field=field, expected=expected, words=words))
    return BadInput(tuple(first.values()))


def _tenants_word(fault: Fault) -> str:
    """These clients cannot agree to anything: their tenant does."""
    if fault.field not in CONSENT:
        return ""
    flag = fault.field.replace("_", "-")
    return f"; on this route the tenant agrees: zen tenants set {DEFAULT_TENANT} --{flag}"


def _object(value: object, field: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise BadInput([Fault(field, shown(value), "an object")])
    return value


def _or(value: object, default: object) -> object:
    return default if value is None else value


def texts(value: object, field: str, most: int) -> tuple[str, ...]:
    """A bounded list of strings."""
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadInput([Fault(field, shown(value), "a list of strings")])
    if len(value) > most:
        raise BadInput([Fault(field, f"{len(value)} of them", f"at most {most}")])
    return tuple(value)
