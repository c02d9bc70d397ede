"""What a hostile job tries on its machine. Each probe prints its name if it works.

For /bin/sh of busybox as of Debian. `$AGENT`: a process of the agent's; `$STATE`: the stack's state
directory; `$NEIGHBOUR`: a process of another job, in whose environment `hunter2` stands.
"""

from __future__ import annotations

from shlex import quote

PROBES = {
    "21 signal the agent": "kill -0 $AGENT",
    "23 read the agent's environment": "cat /proc/$AGENT/environ | grep -q .",
    "23 read the stack's files": "ls $STATE/pg $STATE/store $STATE/run.json",
    "24 see the neighbour": "test -d /proc/$NEIGHBOUR",
    "24 read the neighbour's environment": "grep -aq hunter2 /proc/[0-9]*/environ",
    "24 signal the neighbour": "kill -0 $NEIGHBOUR",
    "read the machine's secrets": "cat /etc/shadow | grep -q root:.",
    "see the agent's /tmp": "test -e /tmp/zen-probe-mark",
    "mount": "mount -t tmpfs none /mnt || mount -t tmpfs none /srv",
    "become root": "su -c true root || chroot / true",
    "read the agent's memory": "test -r /proc/$AGENT/mem",
    "change the kernel's settings": "test -w /proc/sys/kernel/printk",
    "make a device": "mknod /tmp/zen-probe-sda b 8 0 && rm /tmp/zen-probe-sda",
    "ask the metadata server": (
        "wget -q -T 3 -O - --header 'Metadata-Flavor: Google' "
        "http://$METADATA/computeMetadata/v1/instance/id | grep -q ."
    ),
    "reach the container runtime": "test -w /var/run/docker.sock || test -w $RUNTIME",
}


def script() -> str:
    """Every probe in a shell of its own; the last line says that all were tried."""
    tries = [
        f"if ({probe}) >/dev/null 2>&1; then echo {quote(name)}; fi"
        for name, probe in PROBES.items()
    ]
    return "\n".join([*tries, "echo tried"])
