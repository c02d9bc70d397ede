"""What the operator grants every container: configuration and workers share these words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

HOME = "/zen"
"""Where a container finds its places; nothing else may be mounted there."""
NETWORKS = ("auto", "bridge", "host", "none")
USERS = ("job", "image")
MOUNTS_WORDS = (
    'a list of at most 32 mounts, e.g. ["/mnt/data:/data"] (read-only) or ["/mnt/out:/out:rw"]; '
    f"nothing at {HOME}"
)
MOUNTS_MAX = 32
_MOUNT = re.compile(r"/[^:\x00-\x1f\x7f]*:(/[^:\x00-\x1f\x7f]+)(?::(?:ro|rw))?\Z")


@dataclass(frozen=True, slots=True)
class ContainerRules:
    """The same for all containers of a deployment."""

    mounts: tuple[str, ...] = ()
    """Directories of the VM that every container sees: source:target, read-only unless it ends
    with :rw. Jobs cannot ask for others."""
    network: str = "auto"
    """`auto`: `bridge`, and `host` for jobs on several VMs, whose members have to find each other;
    `bridge`: the runtime's own; `host`: as processes have it; `none`."""
    user: str = "job"
    """`job`: a user of the job's own, where the agent is root; `image`: the one that the image
    names, often root of the VM without its capabilities."""

    def network_for(self, *, several: bool) -> str:
        if self.network != "auto":
            return self.network
        return "host" if several else "bridge"

    def binds(self) -> list[str]:
        """As the Docker API takes them."""
        return [m if m.endswith((":ro", ":rw")) else f"{m}:ro" for m in self.mounts]


def are_mounts(value: object) -> bool:
    """Whether each is a mount, and none covers what is ours."""
    if not isinstance(value, list | tuple) or len(value) > MOUNTS_MAX:
        return False
    targets = [_target(mount) for mount in value]
    return all(t and t != "/" and t != HOME and not t.startswith(f"{HOME}/") for t in targets)


def _target(mount: object) -> str:
    found = _MOUNT.match(mount) if isinstance(mount, str) else None
    path = found[1] if found else ""
    parts = [part for part in path.split("/") if part and part != "."]
    return "" if ".." in parts else "/" + "/".join(parts)


def rules_of(words: object) -> ContainerRules | None:
    """The rules from plain values, as instance metadata carries them; None if they are wrong."""
    if not isinstance(words, Mapping):
        return None
    usual = ContainerRules()
    mounts, network = words.get("mounts", []), words.get("network", usual.network)
    user = words.get("user", usual.user)
    if not are_mounts(mounts) or network not in NETWORKS or user not in USERS:
        return None
    return ContainerRules(tuple(mounts), network, user)
