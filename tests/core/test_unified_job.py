"""UnifiedJob manifests become submissions; what is wrong with one is told by its place in it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from core.errors import BadInput
from core.submission import parse_submission
from core.timers import Timers
from core.unified_job import in_manifest_words, is_manifest, native_of_manifest

MANIFEST = """
apiVersion: ai.centauruscloud.io/v1alpha1
kind: UnifiedJob
metadata:
  name: mnist
  namespace: vision
  labels: {team: vision}
  creationTimestamp: 2022-01-01T00:00:00Z
jobType: EPJob
spec:
  jobSpec:
    image: pytorch/pytorch:2.5.1
    unifiedArgs: [train.py, --epochs, 10]
    env:
      - {name: SEED, value: 7}
  replicaSpec:
    minReplicas: 2
    maxReplicas: 8
    targetReplicas: {node-1: 2}
  reschedulable: false
status:
  jobStatus: Waiting
"""


def manifest(**changes: Any) -> dict[str, Any]:
    """The manifest with other values at dotted places; None takes one away."""
    made: dict[str, Any] = copy.deepcopy(yaml.safe_load(MANIFEST))
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = made
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return made


def faults(data: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(BadInput) as caught:
        native_of_manifest(data)
    return {fault.field: fault.expected for fault in caught.value.faults}


def test_every_field_has_its_place() -> None:
    """Theirs, ours: literally."""
    assert native_of_manifest(manifest()) == {
        "job_id": "mnist",
        "name": "mnist",
        "tenant_id": "vision",
        "labels": {"team": "vision"},
        "image": "pytorch/pytorch:2.5.1",
        "command": ["torchrun", "train.py", "--epochs", "10"],
        "environment": {"SEED": "7"},
        "replicas": {"min": 2, "max": 8},
        "reschedulable": False,
    }


def test_it_passes_the_check_of_submissions() -> None:
    """The spec that it stands for."""
    spec = parse_submission(native_of_manifest(manifest()), Timers(), "fresh")
    assert (spec.job_id, spec.tenant_id, spec.least, spec.replicas) == ("mnist", "vision", 2, 8)
    assert spec.command == ("torchrun", "train.py", "--epochs", "10")
    assert spec.elastic
    assert not spec.reschedulable


@pytest.mark.parametrize(
    ("kind", "args", "expected"),
    [
        ("BaseJob", ["sleep 600"], {"command": ["sleep 600"], "shell": True}),
        ("BaseJob", ["echo $A &&", "true"], {"command": ["echo $A && true"], "shell": True}),
        ("EPJob", ["/w/m.py", "--a=b", 3], {"command": ["torchrun", "/w/m.py", "--a=b", "3"]}),
        ("EPJob", ["main.py --a", "$B"],
         {"command": ["exec torchrun main.py --a $B"], "shell": True}),
        ("EPJob", ["main.py", "; date"], {"command": ["torchrun main.py ; date"], "shell": True}),
    ],
)  # fmt: skip
def test_the_type_names_the_program(kind: str, args: list[str], expected: object) -> None:
    """The arguments are joined and given to a shell; torchrun gets them as words where a shell
    would not change them."""
    found = native_of_manifest(manifest(jobType=kind, spec__jobSpec__unifiedArgs=args))
    assert {k: v for k, v in found.items() if k in ("command", "args", "shell")} == expected


def test_a_base_job_is_one_process() -> None:
    """On one VM: its replicas are GPUs, and it gets the least that it asks for."""
    base = native_of_manifest(manifest(jobType="BaseJob"))
    assert ("replicas" in base, base["gpu_count"]) == (False, 2)
    four = native_of_manifest(manifest(jobType="BaseJob", spec__jobSpec__gpusPerReplica=4))
    assert four["gpu_count"] == 8
    sizes = {"minReplicas": 100, "maxReplicas": 100}
    many = manifest(jobType="BaseJob", spec__replicaSpec=sizes)
    with pytest.raises(BadInput) as caught:
        parse_submission(native_of_manifest(many), Timers(), "fresh")
    (fault,) = in_manifest_words(caught.value.faults, many)
    assert fault.field == "spec.replicaSpec.minReplicas"


def test_a_command_goes_before_the_type() -> None:
    """Horovod needs one: there is no list of hosts."""
    command = ["horovodrun", "--host-discovery-script", "./hosts.sh", "python3"]
    made = native_of_manifest(manifest(jobType="EHJob", spec__jobSpec__command=command))
    assert made["command"] == command
    assert "spec.jobSpec.command" in faults(manifest(jobType="EHJob"))


def test_sizes() -> None:
    """One number is a gang, none is one VM; `reschedulable` may stand in either place."""
    assert native_of_manifest(manifest(spec__replicaSpec__maxReplicas=2))["replicas"] == 2
    assert native_of_manifest(manifest(spec__replicaSpec=None))["replicas"] == 1
    moved = manifest(spec__reschedulable=None, spec__jobSpec__reschedulable=False)
    assert native_of_manifest(moved)["reschedulable"] is False


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"kind": "Job"}, "kind", "UnifiedJob"),
        ({"apiVersion": None}, "apiVersion", "the version"),
        ({"metadata__name": None}, "metadata.name", "a name"),
        ({"metadata": None}, "metadata", "an object"),
        ({"jobType": "MPIJob"}, "jobType", "one of: BaseJob, EPJob, EHJob, HJob"),
        ({"spec": []}, "spec", "an object"),
        ({"spec__jobSpec": None}, "spec.jobSpec", "an object"),
        ({"spec__jobSpec__unifiedArgs": None}, "spec.jobSpec.unifiedArgs", "a command, or a list"),
        ({"spec__jobSpec__unifiedArgs": [{}]}, "spec.jobSpec.unifiedArgs", "words for torchrun"),
        ({"spec__jobSpec__gpuTyp": "l4"}, "spec.jobSpec.gpuTyp", "nearest: gpuType"),
        ({"spec__replicaSpec__minReplicas": 0}, "spec.replicaSpec.minReplicas", "from 1 to 1000"),
        ({"spec__replicaSpec__minReplicas": True}, "spec.replicaSpec.minReplicas", "whole"),
        ({"spec__replicaSpec__maxReplicas": 1}, "spec.replicaSpec.maxReplicas", "minReplicas, 2"),
        ({"spec__reschedulable": "no"}, "spec.reschedulable", "true or false"),
        ({"spec__jobSpec__reschedulable": True}, "spec.jobSpec.reschedulable", "the same in both"),
        ({"jobtype": "EPJob"}, "jobtype", "nearest: jobType"),
    ],
)
def test_a_fault_names_its_place(changes: dict[str, Any], field: str, words: str) -> None:
    assert words in faults(manifest(**changes))[field]


def test_faults_of_the_submission_are_told_by_their_place() -> None:
    """A name that is no job id, a label that is none."""
    bad = manifest(metadata__name="no spaces!", metadata__labels={"a": 1})
    with pytest.raises(BadInput) as caught:
        parse_submission(native_of_manifest(bad), Timers(), "fresh")
    told = {fault.field for fault in in_manifest_words(caught.value.faults, bad)}
    assert told == {"metadata.name", "metadata.labels"}


def test_what_a_manifest_is() -> None:
    """Right or wrong: a document with kind or apiVersion is one."""
    assert is_manifest({"kind": "Pod"})
    assert not is_manifest({"command": ["true"]})
    assert not is_manifest(["kind"])
