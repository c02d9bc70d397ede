"""Whose a connection is: on one machine the kernel knows the user at its other end.

A local bus and a pretend cloud have no accounts. They serve the user who runs them, and root; jobs,
which have users of their own where the stack runs as root, are strangers.
"""

from __future__ import annotations

import ipaddress
import os
import sys

from core.browser_checks import is_loopback
from localbus.errors import Denied
from messaging.connection_owners import Address, owner_of


def is_stranger(there: Address, here: Address) -> bool:
    """Whether another user than ours asks. What arrives at loopback comes from this machine, by
    whatever address it calls itself. Elsewhere nobody is a stranger: an operator who listens beyond
    loopback decides about the network."""
    if not is_loopback(here[0]) or not sys.platform.startswith("linux"):
        return False
    if not all(map(_is_ipv4, (there[0], here[0]))):
        return True
    return owner_of(there, here) not in (0, os.geteuid())


def check_grpc_peer(peer: str, here: Address) -> None:
    """Denied for a stranger; `peer` as gRPC spells it: ipv4:127.0.0.1:40000."""
    kind, _, rest = peer.partition(":")
    host, _, port = rest.rpartition(":")
    known = kind == "ipv4" and port.isdigit()
    if not known or is_stranger((host, int(port)), here):
        raise Denied("the local bus serves the user who runs it, and no other")


def _is_ipv4(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 4
    except ValueError:
        return False
