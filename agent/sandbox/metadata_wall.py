"""Closes the instance metadata server to jobs: it hands out tokens of the VM's service account.

By the users of jobs, and for containers with a network of their own by the way their packets take.
Names are asked of the same address (port 53), which stays open.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from core.sandbox import SandboxRules

SERVER = "169.254.169.254"
SERVER_6 = "fd20:ce::254"
_TABLE = "zen_jobs"
_TIMEOUT_S = 20.0
_SBIN = "/usr/sbin:/sbin:/usr/bin:/bin"
_ADDRESSES_6 = Path("/proc/net/if_inet6")


def close_metadata_server(rules: SandboxRules) -> str:
    """Why it, or one of its addresses, is open to jobs; empty if it is closed."""
    users = f"{rules.uid_first}-{rules.uid_first + rules.uid_count - 1}"
    why = "neither nft nor iptables is installed"
    for command, close in (("nft", _by_nft), ("iptables", _by_iptables)):
        program = shutil.which(command, path=_SBIN)
        if program is None:
            continue
        try:
            return close(program, users)
        except subprocess.CalledProcessError as error:
            why = f"{command}: {error.stderr.decode(errors='replace').strip()[-200:]}"
        except (OSError, subprocess.SubprocessError) as error:
            why = f"{command}: {error}"
    return f"the metadata server is open to jobs: {why}"


def _by_nft(program: str, users: str) -> str:
    """One table of our own for both addresses, replaced in one step."""
    to = [f"ip daddr {SERVER}", f"ip6 daddr {SERVER_6}"]
    own = "\n".join(f"meta skuid {users} {each} tcp dport != 53 reject" for each in to)
    others = "\n".join(f"{each} tcp dport != 53 reject" for each in to)
    text = f"""
table inet {_TABLE}
delete table inet {_TABLE}
table inet {_TABLE} {{
  chain output {{ type filter hook output priority 0; policy accept;
    {own}
  }}
  chain forward {{ type filter hook forward priority -10; policy accept;
    {others}
  }}
}}
"""
    _run([program, "-f", "-"], text)
    return ""


def _by_iptables(program: str, users: str) -> str:
    """It knows one address; the other one is ip6tables' matter, where the machine speaks IPv6."""
    _reject(program, SERVER, users)
    if not _has_ipv6():
        return ""
    second = shutil.which("ip6tables", path=_SBIN)
    if second is None:
        return f"{SERVER_6} of the metadata server is open to jobs: ip6tables is not installed"
    try:
        _reject(second, SERVER_6, users)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{SERVER_6} of the metadata server is open to jobs: ip6tables: {error}"
    return ""


def _has_ipv6() -> bool:
    try:
        return bool(_ADDRESSES_6.read_text(encoding="ascii"))
    except OSError:
        return False


def _reject(program: str, address: str, users: str) -> None:
    to = ["-d", address, "-p", "tcp", "!", "--dport", "53"]
    for chain, whose in (("OUTPUT", ["-m", "owner", "--uid-owner", users]), ("FORWARD", [])):
        rule = [chain, *to, *whose, "-j", "REJECT"]
        there = subprocess.run(
            [program, "-w", "-C", *rule], capture_output=True, timeout=_TIMEOUT_S, check=False
        )
        if there.returncode:
            _run([program, "-w", "-I", *rule])


def _run(command: list[str], text: str = "") -> None:
    subprocess.run(
        command, input=text.encode(), capture_output=True, timeout=_TIMEOUT_S, check=True
    )
