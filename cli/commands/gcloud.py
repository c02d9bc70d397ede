"""The gcloud commands that make a configuration real: templates and regional groups."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator

from cli.local.templates import accelerator, labels, metadata, scheduler_keys
from config.settings import Settings
from core.cluster import ClusterSpec, RegionSpec

HEADER = """\
#!/bin/sh
# Instance templates and regional managed instance groups, made by: zen infra gcloud
# ZEN_IMAGE is the family of an image with the agent installed, ZEN_IMAGE_PROJECT where it lies,
# ZEN_SERVICE_ACCOUNT may publish, subscribe and write to the store.
set -eu
: "${ZEN_IMAGE:?an image family with the agent}" "${ZEN_IMAGE_PROJECT:?its project}"
: "${ZEN_SERVICE_ACCOUNT:?the service account of the VMs}\""""

# Spot VMs whose template asks for it hear of their end so long before the soft off: time for
# checkpoints. Google knows no other length.
_NOTICE = "--preemption-notice-duration=120s"
NOTICE_OR_NOT = f"""\
case "$(gcloud compute instance-templates create --help)" in
  *{_NOTICE.partition("=")[0]}*) ZEN_NOTICE={_NOTICE} ;;
  *) ZEN_NOTICE=
     echo 'spot VMs will be told 30 s before they go, not 150 s: gcloud 586 could' >&2 ;;
esac"""


# What Google asks of a template for resize requests. The week is for VMs that come one by one; a
# request brings a time of its own.
_FLEX_START = (
    "--provisioning-model=FLEX_START",
    "--instance-termination-action=DELETE",
    "--max-run-duration=7d",
    "--reservation-affinity=none",
)


def commands(settings: Settings, cluster: str | None) -> Iterator[str]:
    """Each command as text for a shell; one cluster's, or all of them."""
    chosen = [settings.cluster(cluster)] if cluster else settings.clusters
    if any(spec.spot and spec.pool == "mig" for spec in chosen):
        yield NOTICE_OR_NOT
    for spec in chosen:
        if spec.pool != "mig":
            continue
        template, create = _template(settings, spec)
        yield create
        for region in spec.regions:
            yield _group(settings, spec, region, template)


def _template(settings: Settings, cluster: ClusterSpec) -> tuple[str, str]:
    words = metadata(settings, cluster, scheduler_keys(settings))
    version = _version(cluster, words)
    name = settings.names.template(cluster.name, version)
    # Another delimiter than the comma, which the JSON among the values needs.
    pairs = "^;;^" + ";;".join(f"{key}={value}" for key, value in words.items())
    marks = ",".join(f"{key}={value}" for key, value in labels(settings, cluster).items())
    flags = [
        f"--project={settings.project}",
        f"--machine-type={cluster.machine_type}",
        "--maintenance-policy=TERMINATE",
        "--no-restart-on-failure",
        "--scopes=cloud-platform",
        f"--labels={marks}",
        f"--metadata={pairs}",
    ]
    if attached := accelerator(cluster):
        flags.append(f"--accelerator=type={attached},count={cluster.gpus}")
    if cluster.spot:
        flags += ["--provisioning-model=SPOT", "--instance-termination-action=STOP"]
    if cluster.flex_start_wait_s is not None:
        flags += _FLEX_START
    variables = [
        '--image-family="$ZEN_IMAGE"',
        '--image-project="$ZEN_IMAGE_PROJECT"',
        '--service-account="$ZEN_SERVICE_ACCOUNT"',
    ]
    if cluster.spot:
        variables.append('${ZEN_NOTICE:+"$ZEN_NOTICE"}')
    return name, _command(["compute", "instance-templates", "create", name], flags, variables)


def _group(settings: Settings, cluster: ClusterSpec, region: RegionSpec, template: str) -> str:
    name = settings.names.mig(cluster.name, region.region)
    flags = [
        f"--project={settings.project}",
        f"--region={region.region}",
        f"--zones={','.join(region.zones)}",
        f"--template={template}",
        f"--base-instance-name={settings.names.vm_base(cluster.name, region.region)}",
        "--size=0",
        # Any zone that has the GPU will do; an even spread would wait for the emptiest.
        "--target-distribution-shape=any",
        "--instance-redistribution-type=NONE",
        # A repaired VM comes back without its job; we delete it by name and decide anew.
        "--default-action-on-vm-failure=do-nothing",
    ]
    return _command(["compute", "instance-groups", "managed", "create", name], flags, [])


def _version(cluster: ClusterSpec, words: dict[str, str]) -> str:
    """Templates cannot be changed, only replaced: other content gets another name."""
    facts: list[object] = [cluster.machine_type, cluster.spot, words]
    if cluster.flex_start_wait_s is not None:
        facts.append(_FLEX_START)
    if cluster.spot:
        facts.append(_NOTICE)
    content = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _command(words: list[str], flags: list[str], variables: list[str]) -> str:
    parts = [" ".join(["gcloud", *map(shlex.quote, words)])]
    parts += [shlex.quote(flag) for flag in flags] + variables
    return " \\\n  ".join(parts)
