"""v1 workers on the local stack: what their pretend VMs run, and how `gcloud` finds the bus."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cli.local.process import ChildFailed
from config.settings import Settings

V1_WORKER = "ZEN_V1_WORKER"
"""The variable that names the script of v1 workers for a local run."""
V1_METADATA = "ZEN_V1_METADATA"
"""The variable that names what the instance templates of v1 workers say: PZ_ENV=dev,OTHER=x."""
PUBSUB_OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB"


def gcloud_environment(project: str, bus_rest: str) -> dict[str, str]:
    """What leads `gcloud pubsub` to the local bus, without credentials and without questions."""
    return {
        PUBSUB_OVERRIDE: f"{bus_rest}/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
    }


def v1_worker(settings: Settings, note: Callable[[str], None]) -> str:
    """The script that pretend VMs with v1 workers run: workers of that kind are not ours, so it
    must be given. Without one such VMs stay idle."""
    clusters = ", ".join(c.name for c in settings.clusters if c.worker == "v1")
    path = os.environ.get(V1_WORKER)
    if not clusters:
        return ""
    if path is None:
        note(f"nobody works on the pretend VMs of {clusters}: {V1_WORKER} names a script for them")
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ChildFailed(f"{V1_WORKER}={path} cannot be read: {error}") from error


def v1_metadata() -> dict[str, str]:
    """What v1 workers find in the metadata of their pretend VMs, besides our own keys."""
    text = os.environ.get(V1_METADATA, "")
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if any(not name or not equals for name, equals, _ in pairs):
        raise ChildFailed(
            f"{V1_METADATA}={text}: got no name and value, expected PZ_ENV=dev,OTHER=x"
        )
    return {name.strip(): value for name, _, value in pairs}
