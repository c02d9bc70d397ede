"""Which user of this machine holds the other end of a connection: the kernel knows."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

Address = tuple[str, int]
_ESTABLISHED = 1
_SOCK_DIAG = 4
_BY_FAMILY, _REQUEST = 20, 1
_HEADER = struct.Struct("=IHHII")
_ANY_COOKIE = b"\xff" * 8
_STATE_AT, _UID_AT = 1, 4 + 48 + 12
_ANSWER_BYTES = 8192
_TIMEOUT_S = 1.0


def owner_of(there: Address, here: Address) -> int | None:
    """The user of the socket at `there` that is connected to `here`, both IPv4; None: nobody holds
    it any more."""
    try:
        return _ask_kernel(there, here)
    except OSError:  # a kernel without it
        return _look_up(there, here)


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
