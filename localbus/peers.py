"""Whose a connection is: on one machine the kernel knows the user at its other end.

A local bus and a pretend cloud have no accounts. They serve the user who runs them, and root; jobs,
which have users of their own where the stack runs as root, are strangers.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from pathlib import Path

from core.browser_checks import is_loopback
from localbus.errors import Denied

Address = tuple[str, int]
_ESTABLISHED = 1
_SOCK_DIAG = 4
_BY_FAMILY, _REQUEST = 20, 1
_HEADER = struct.Struct("=IHHII")
_ANY_COOKIE = b"\xff" * 8
_STATE_AT, _UID_AT = 1, 4 + 48 + 12
_ANSWER_BYTES = 8192
_TIMEOUT_S = 1.0


def is_stranger(there: Address, here: Address) -> bool:
    """Whether another user than ours asks. What arrives at loopback comes from this machine, by
    whatever address it calls itself. Elsewhere nobody is a stranger: an operator who listens beyond
    loopback decides about the network."""
    if not is_loopback(here[0]) or not sys.platform.startswith("linux"):
        return False
    if not all(map(_is_ipv4, (there[0], here[0]))):
        return True
    try:
        uid = _ask_kernel(there, here)
    except OSError:  # a kernel without it
        uid = _look_up(there, here)
    return uid not in (0, os.geteuid())


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


def _ask_kernel(there: Address, here: Address) -> int | None:
    """The user of the socket at `there` that is connected to `here`: one question of 15 µs. None:
    there is none, or nobody holds it any more; the kernel calls that root's."""
    ends = struct.pack("!HH", there[1], here[1])
    hosts = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host in (there[0], here[0]))
    asked = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    asked += ends + hosts + struct.pack("=I", 0) + _ANY_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
        netlink.settimeout(_TIMEOUT_S)
        netlink.send(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked)
        answer = netlink.recv(_ANSWER_BYTES)
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    found = answer[_HEADER.size :]
    uid, inode = struct.unpack_from("=II", found, _UID_AT)
    return int(uid) if found[_STATE_AT] == _ESTABLISHED and inode else None


def _look_up(there: Address, here: Address) -> int | None:
    """The same from /proc, which lists every socket of the machine."""
    wanted = [_hex(*there), _hex(*here), f"{_ESTABLISHED:02X}"]
    try:
        lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return os.geteuid()  # no such kernel: all of this is one user's laptop
    for words in map(str.split, lines):
        if words[1:4] == wanted and words[9] != "0":
            return int(words[7])
    return None


def _hex(host: str, port: int) -> str:
    """As /proc/net/tcp spells it."""
    return f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}:{port:04X}"
