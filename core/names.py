"""Names of clusters, groups, VMs, topics and subscriptions: built and parsed here, nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.errors import ZenError

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
CLUSTER = re.compile(r"(?P<gpus>0|[1-9][0-9]{0,2})x(?P<gpu_type>[a-z0-9][a-z0-9-]{0,30})\Z")
CPU_TYPE = "cpu"
"""Begins what stands for the GPU type in the name of a cluster without GPUs: 0xcpu."""
SPOT_SUFFIX = "-spot"
"""Ends the name of a spot cluster whose GPU type has a standard one as well."""
_REGION = r"[a-z]+-[a-z]+[0-9]+"


_REQUEST = re.compile(r"gang-(?P<gang>[0-9a-z-]{1,40})-[a-z0-9]{4}\Z")


class BadName(ZenError):
    """A name that does not parse; the name is in the message."""

    code = "bad_name"


@dataclass(frozen=True, slots=True)
class Names:
    """Everything is derived from one prefix, so that two deployments can share a project."""

    prefix: str = "pipeline-zen-jobs"

    def mig(self, cluster: str, region: str) -> str:
        """The managed instance group of a cluster in a region."""
        return f"{self.prefix}-{cluster}-{region}-mig"

    def vm_base(self, cluster: str, region: str) -> str:
        """The base instance name of that group."""
        return f"{self.prefix}-{cluster}-{region}-vm"

    def vm(self, cluster: str, region: str, suffix: str) -> str:
        """A VM of that group."""
        return f"{self.vm_base(cluster, region)}-{suffix}"

    def template(self, cluster: str, version: str) -> str:
        """The instance template of a cluster."""
        return f"{self.prefix}-{cluster}-{version}-tpl"

    def is_vm_of(self, cluster: str, name: str) -> bool:
        """Whether a VM of that cluster could have the name."""
        base = rf"{re.escape(self.prefix)}-{re.escape(cluster)}-{_REGION}-vm-[a-z0-9]{{4}}\Z"
        return re.match(base, name) is not None

    def parse_vm(self, name: str) -> tuple[str, str]:
        """(cluster, region) of a VM name."""
        pattern = (
            rf"{re.escape(self.prefix)}-(?P<cluster>[0-9]+x[a-z0-9-]+)"
            rf"-(?P<region>{_REGION})-vm-[a-z0-9]{{4}}\Z"
        )
        found = re.match(pattern, name)
        if not found:
            raise BadName(
                f"VM name {name!r} does not have the form "
                f"{self.prefix}-<cluster>-<region>-vm-<4 characters>"
            )
        return found["cluster"], found["region"]

    @property
    def start_topic(self) -> str:
        return f"{self.prefix}-start"

    @property
    def stop_topic(self) -> str:
        return f"{self.prefix}-stop"

    @property
    def heartbeat_topic(self) -> str:
        return f"{self.prefix}-heartbeats"

    @property
    def control_topic(self) -> str:
        return f"{self.prefix}-control"

    @property
    def submit_topic(self) -> str:
        return f"{self.prefix}-submit"

    @property
    def submit_dead_topic(self) -> str:
        return f"{self.prefix}-submit-dead"

    @property
    def reply_prefix(self) -> str:
        """Begins the names of topics for answers to submissions, if they shall have our prefix."""
        return f"{self.prefix}-submit-replies"

    def start_subscription(self, cluster: str) -> str:
        return f"{self.prefix}-start-runner-{cluster}"

    @property
    def stop_subscription(self) -> str:
        return f"{self.prefix}-stop-runner"

    @property
    def heartbeat_subscription(self) -> str:
        return f"{self.prefix}-heartbeats-scheduler"

    @property
    def submit_subscription(self) -> str:
        return f"{self.prefix}-submit-scheduler"

    @property
    def submit_dead_subscription(self) -> str:
        return f"{self.prefix}-submit-dead-scheduler"

    def control_subscription(self, vm_name: str, boot_nonce: str) -> str:
        return f"{self.prefix}-control-{vm_name}-{boot_nonce}"


def request_for(gang: str, suffix: str) -> str:
    """Names a request for all VMs of a gang at once, within its group."""
    return f"gang-{gang}-{suffix}"


def gang_of(request: str) -> str:
    """Whose VMs a request with that name asked for."""
    found = _REQUEST.match(request)
    if not found:
        raise BadName(f"request {request!r} does not have the form gang-<gang>-<4 characters>")
    return found["gang"]


def parse_cluster(name: str) -> tuple[int, str]:
    """(GPUs per VM, GPU type) of a cluster name such as 4xa100-40gb, or 4xa100-40gb-spot."""
    found = CLUSTER.match(name)
    if not found:
        raise BadName(f"cluster name {name!r} does not have the form <number>x<gpu type>")
    return int(found["gpus"]), found["gpu_type"].removesuffix(SPOT_SUFFIX)
