"""When a test may be skipped: "needs TOOL: why", and the tool really is not here."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping

from tests.agent.podman import why_not
from tests.localbus.backends import why_no_emulator

TOOLS: Mapping[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,
    "nft": lambda: shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is not None,
    "iptables": lambda: shutil.which("iptables", path="/usr/sbin:/sbin:/usr/bin") is not None,
    "gcloud": lambda: shutil.which("gcloud") is not None,
    "pubsub-emulator": lambda: why_no_emulator() is None,
    "containers": lambda: not why_not(),
}


def why_unfounded(reason: str) -> str:
    """What is wrong with a skip; empty if it is honest."""
    found = re.match(r"needs ([a-z-]+): ", reason)
    if not found:
        return "a reason has the form 'needs TOOL: why'"
    tool = found[1]
    if tool not in TOOLS:
        return f"tests/skips.py does not know how to look for {tool}"
    return f"{tool} is here" if TOOLS[tool]() else ""
