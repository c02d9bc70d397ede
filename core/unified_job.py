"""UnifiedJob manifests: another system's words for a job, turned into a submission of ours. Pure.

`native_of_manifest()` reports every fault at once, by its place in the manifest. What is wrong with
the submission that it becomes is told by its place in the manifest too (`in_manifest_words`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from core.errors import BadInput, Fault
from core.field_kinds import REPLICAS_MAX
from core.submission import shown, unknown

KIND = "UnifiedJob"
BASE = "BaseJob"
"""One process on one VM: its replicas are the GPUs that it gets there."""
PROGRAMS: Mapping[str, str | None] = {
    BASE: "/bin/sh -c",
    "EPJob": "torchrun",
    "EHJob": None,
    "HJob": None,
}
"""Type → what runs `unifiedArgs`. Horovod wants a list of hosts, which only a command can make of
$ZEN_SIZE_FILE."""
_FOR_SHELL = re.compile(r"[^A-Za-z0-9_@%+=:,./-]")
"""With such a character in it, or empty, a word is something else to a shell than to a program."""
_TOP = ("apiVersion", "kind", "metadata", "jobType", "spec", "status")
_SPEC = ("jobSpec", "replicaSpec", "reschedulable")
_REPLICA_SPEC = ("minReplicas", "maxReplicas", "targetReplicas")
_JOB_SPEC: Mapping[str, str] = {
    "image": "image",
    "command": "command",
    "unifiedArgs": "args",
    "env": "environment",
    "workingDir": "working_dir",
    "gpuType": "gpu_type",
    "gpusPerReplica": "gpu_count",
    "cpuCores": "cpu_cores",
    "memoryMb": "memory_mb",
    "priority": "priority",
    "retries": "retries",
    "maxRuntimeMinutes": "max_runtime_minutes",
    "cluster": "cluster",
    "regions": "regions",
    "spot": "spot",
    "allowLarger": "allow_larger",
    "maxUsdPerHour": "max_usd_per_hour",
}
"""Theirs → ours. All but the first three are our additions."""
_PLACES: Mapping[str, str] = {
    "job_id": "metadata.name",
    "name": "metadata.name",
    "tenant_id": "metadata.namespace",
    "labels": "metadata.labels",
    "replicas": "spec.replicaSpec",
    "reschedulable": "spec.reschedulable",
    **{ours: f"spec.jobSpec.{theirs}" for theirs, ours in _JOB_SPEC.items()},
}


def is_manifest(data: object) -> bool:
    """Whether somebody means a manifest, right or wrong."""
    return isinstance(data, Mapping) and ("kind" in data or "apiVersion" in data)


def native_of_manifest(data: Mapping[str, object]) -> dict[str, object]:
    """The same as a submission, or BadInput with every fault."""
    faults: list[Fault] = []
    _known(data, "", _TOP, faults)
    if data.get("kind") != KIND:
        faults.append(Fault("kind", shown(data.get("kind")), KIND))
    if not isinstance(data.get("apiVersion"), str) or not data["apiVersion"]:
        expected = "the version of the manifest, e.g. ai.centauruscloud.io/v1alpha1"
        faults.append(Fault("apiVersion", shown(data.get("apiVersion")), expected))
    spec = _object(data, "spec", "", faults)
    _known(spec, "spec.", _SPEC, faults)
    job = _object(spec, "jobSpec", "spec.", faults)
    kind = _kind(data)
    sizes = _sizes(_object(spec, "replicaSpec", "spec.", faults, needed=False), faults)
    native = {
        **_named(_object(data, "metadata", "", faults), faults),
        **_job(job, kind, faults),
        **_reschedulable(spec, job, faults),
    }
    if faults:
        raise BadInput(faults)
    return native | _placed(kind, sizes, native.get("gpu_count", 1))


def in_manifest_words(faults: Iterable[Fault], data: Mapping[str, object]) -> list[Fault]:
    """Faults of the submission, by where they came from."""
    places = dict(_PLACES)
    if _kind(data) == BASE:
        places["gpu_count"] = "spec.replicaSpec.minReplicas"
    return [replace(fault, field=places.get(fault.field, fault.field)) for fault in faults]


def _kind(data: Mapping[str, object]) -> str:
    return str(data.get("jobType", BASE))


def _named(metadata: Mapping[str, object], faults: list[Fault]) -> dict[str, object]:
    """What a cluster's own server adds to metadata is passed over."""
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        faults.append(Fault("metadata.name", shown(name), "a name: it becomes the job's id"))
    found: dict[str, object] = {"job_id": name, "name": name}
    if metadata.get("namespace") is not None:
        found["tenant_id"] = metadata["namespace"]
    if metadata.get("labels") is not None:
        found["labels"] = metadata["labels"]
    return found


def _job(job: Mapping[str, object], kind: str, faults: list[Fault]) -> dict[str, object]:
    _known(job, "spec.jobSpec.", (*_JOB_SPEC, "reschedulable"), faults)
    found = {ours: job[theirs] for theirs, ours in _JOB_SPEC.items() if job.get(theirs) is not None}
    for name, mend in (("args", _words), ("command", _words), ("environment", _variables)):
        if name in found:
            found[name] = mend(found[name])
    if kind not in PROGRAMS:
        faults.append(Fault("jobType", shown(kind), f"one of: {', '.join(PROGRAMS)}"))
    elif "command" not in found:
        program, args = PROGRAMS[kind], found.pop("args", None)
        if program is None:
            expected = f"a command: {kind} has no program of its own here"
            faults.append(Fault("spec.jobSpec.command", "nothing", expected))
        elif not _are_words(args):
            expected = f"a command, or a list of words for {program}"
            faults.append(
                Fault("spec.jobSpec.unifiedArgs", shown(job.get("unifiedArgs")), expected)
            )
        else:
            assert isinstance(args, list), "words are a list"
            found |= _program(kind, program, args)
    return found


def _are_words(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(w, str) for w in value)


def _program(kind: str, program: str, args: list[str]) -> dict[str, object]:
    """That system joins the words and gives them to a shell. Where a shell would change none of
    them there is none: a program that is missing is then named, and signals reach it."""
    line = " ".join(args)
    if kind == BASE:
        return {"command": [line], "shell": True}
    if any(not word or _FOR_SHELL.search(word) for word in args):
        # exec: a signal is for the program; not where more than one command follows.
        first = "" if re.search(r"[;&|\n]", line) else "exec "
        return {"command": [f"{first}{program} {line}"], "shell": True}
    return {"command": [program, *args]}


def _placed(kind: str, sizes: tuple[int, int], each: object) -> dict[str, object]:
    """How many GPUs on how many VMs. `each`: of a replica; what is none is left to its check."""
    least, most = sizes
    if kind == BASE:
        return {"gpu_count": least * each if isinstance(each, int) else each}
    return {"replicas": most if most == least else {"min": least, "max": most}}


def _sizes(spec: Mapping[str, object], faults: list[Fault]) -> tuple[int, int]:
    """(least, most). `targetReplicas` is for that system's scheduler to write: here it means
    nothing."""
    _known(spec, "spec.replicaSpec.", _REPLICA_SPEC, faults)
    least = spec.get("minReplicas", 1)
    most = spec.get("maxReplicas", least)
    for name, value in (("minReplicas", least), ("maxReplicas", most)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= REPLICAS_MAX:  # type: ignore[operator]  # it is an int
            expected = f"a whole number from 1 to {REPLICAS_MAX}"
            faults.append(Fault(f"spec.replicaSpec.{name}", shown(value), expected))
            return 1, 1
    assert isinstance(least, int), "checked above"
    assert isinstance(most, int), "checked above"
    if most < least:
        expected = f"at least minReplicas, {least}"
        faults.append(Fault("spec.replicaSpec.maxReplicas", shown(most), expected))
    return least, most


def _reschedulable(
    spec: Mapping[str, object], job: Mapping[str, object], faults: list[Fault]
) -> dict[str, object]:
    """It stands in one of two places."""
    said = {
        "spec.reschedulable": spec.get("reschedulable"),
        "spec.jobSpec.reschedulable": job.get("reschedulable"),
    }
    given = {path: value for path, value in said.items() if value is not None}
    for path, value in given.items():
        if not isinstance(value, bool):
            faults.append(Fault(path, shown(value), "true or false"))
    if len(set(map(shown, given.values()))) > 1:
        faults.append(Fault("spec.jobSpec.reschedulable", "two answers", "the same in both places"))
    return {"reschedulable": next(iter(given.values()))} if given else {}


def _words(value: object) -> object:
    """YAML reads 3 as a number; a program is given words."""
    if not isinstance(value, list):
        return value
    return [str(word) if _is_number(word) else word for word in value]


def _variables(value: object) -> object:
    """An object, or the list of {name, value} that manifests are used to."""
    if isinstance(value, list) and all(isinstance(pair, Mapping) for pair in value):
        value = {pair.get("name"): pair.get("value", "") for pair in value}
    if not isinstance(value, Mapping):
        return value
    return {name: str(word) if _is_number(word) else word for name, word in value.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(
    parent: Mapping[str, object],
    name: str,
    path: str,
    faults: list[Fault],
    *,
    needed: bool = True,
) -> Mapping[str, object]:
    value = parent.get(name)
    if isinstance(value, Mapping):
        return value
    if needed or value is not None:
        faults.append(Fault(path + name, shown(value), "an object"))
    return {}


def _known(
    given: Mapping[str, object], path: str, known: Iterable[str], faults: list[Fault]
) -> None:
    names = tuple(known)
    faults += [
        unknown("field", str(key), names, f"{path}{str(key)[:80]}")
        for key in given
        if key not in names
    ]
