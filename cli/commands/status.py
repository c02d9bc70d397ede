"""zen status: whether it runs, and the whole house at a glance."""

from __future__ import annotations

from cli.client import Client, Json, Refused, Unreachable, api_address
from cli.options import Api, command
from cli.output.counts import counted
from cli.output.durations import between, moment, short
from cli.output.printing import Answer
from cli.paths import PROGRAM, alive, home
from core.clock import SystemClock

DOWN_CODE = 3


@command
def status(api: Api = None) -> Answer:
    """Processes, API, leader, jobs, VMs. Exit code 0 when it answers, 3 when it does not.

    \b
    Examples:
      zen status
      zen status --json || zen up --detach
    """
    running = home().read() if api is None else None
    processes = dict(running.processes) if running else {}
    address = ""
    try:
        address = api_address(api)
        with Client(address) as client:
            found = client.get("/status")
    except (Unreachable, Refused) as error:
        left = {name: pid for name, pid in processes.items() if alive(pid)}
        down = {"up": False, "api": address or None, "processes": left, "message": str(error)}
        lines = [f"down: {error}", *([f"running: {_processes(left)}"] if left else [])]
        return Answer(down, lines, code=DOWN_CODE)
    others = [known for known in running.apis if known != address] if running else []
    lines = [
        f"{name + ':':<11}{value}"
        for name, value in _lines(found, ", ".join([address, *others]), processes).items()
    ]
    return Answer({"up": True, "api": address, "processes": processes, **found}, lines)


def _lines(found: Json, address: str, processes: dict[str, int]) -> dict[str, str]:
    now = SystemClock().now()
    lines = {"up": address}
    if processes:
        lines["processes"] = _processes(processes)
    until = moment(found.get("leader_until"))
    left = f", lease {short((until - now).total_seconds())}" if until else ""
    leader = found.get("leader")
    lines["leader"] = f"{leader} (term {found['term']}{left})" if leader else "none"
    lines["jobs"] = counted(found["jobs"]) or "none"
    if found.get("oldest_waiting_since"):
        lines["waiting"] = f"the oldest for {between(found['oldest_waiting_since'], now)}"
    lines["VMs"] = counted(found["vms"]) or "none (started when there is work)"
    if found.get("burn_usd_per_hour"):
        lines["burn rate"] = f"${found['burn_usd_per_hour']:.2f}/h"
    etas = found.get("etas") or {}
    if etas.get("told"):
        told, held = etas["told"], etas["p90_held"]
        lines["ETAs"] = f"{held} of {told} jobs ({held / told:.0%}) started before their p90"
    lines["outbox"] = f"{found['outbox']} messages not yet confirmed by the bus"
    lines["alerts"] = f"{found['open_alerts']} open" + (
        f" (see {PROGRAM} alerts)" if found["open_alerts"] else ""
    )
    if found.get("config"):
        lines["config"] = _config(found["config"])
    if found.get("embedded"):
        lines["limit"] = str(found["embedded"]["note"])
    return lines


def _config(config: Json) -> str:
    """Where to edit, and what became of the last edit."""
    words = f"version {config['version']}, {config['file']} ({config['state']})"
    if config["state"] != "in force":
        words += f": see {PROGRAM} config diff"
    return words


def _processes(processes: dict[str, int]) -> str:
    return ", ".join(f"{name} {pid}" for name, pid in processes.items())
