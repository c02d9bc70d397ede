"""`zen whatif`: the same past under another configuration, replayed in virtual time."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client import Client, Json, api_address
from cli.options import Api, command
from cli.output.durations import short
from cli.output.printing import Answer, fitted, money, note, say
from cli.output.tables import Fitted
from core.errors import NotFound

if TYPE_CHECKING:
    from sim.replay.history import RecordedHistory
    from sim.replay.supply import Supply
    from sim.replay.whatif import Present, WhatIfResult
    from sim.replay.workload import Workload

PAGE, JOBS_MAX = 500, 50_000
HEADINGS = (
    *("WAIT", "P50", "P95", "DOLLARS", "WASTED", "VM_HOURS", "WASTED_H", "TAKEN", "VMS", "WHAT"),
)
VM_MAX, BOOT_S = 100, 90.0
PROGRESS_LINES = 10


@dataclass(frozen=True, slots=True)
class WhatifOptions:
    """What `zen whatif` is wanted."""

    jobs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Jobs: submit_s, duration_s, num_gpu.")
    ] = None
    supply: Annotated[
        Path | None, typer.Option(metavar="FILE", help="VMs each zone can give, over time.")
    ] = None
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="region, usd_per_gpu_hour.")
    ] = None
    spot_prices: Annotated[Path | None, typer.Option(metavar="FILE", help="The same for spot.")] = (
        None
    )
    cluster: Annotated[
        str | None, typer.Option(metavar="C", help="A cluster of the stack that runs.")
    ] = None
    group: Annotated[
        str | None, typer.Option(metavar="G", help="Only the jobs of this tenant or cluster.")
    ] = None
    days: Annotated[float, typer.Option(help="At most so many days of jobs.", min=0.01)] = 7.0
    region: Annotated[
        list[str] | None, typer.Option(metavar="R", help="In use now; default: all but the added.")
    ] = None
    add_region: Annotated[
        list[str] | None, typer.Option(metavar="R", help="What if this one were added?")
    ] = None
    drop_region: Annotated[
        list[str] | None, typer.Option(metavar="R", help="What if this one were gone?")
    ] = None
    vm_max_now: Annotated[
        int | None, typer.Option(metavar="N", help="The limit now; else the cluster's.", min=1)
    ] = None
    vm_max: Annotated[
        int | None, typer.Option(metavar="N", help="What if the limit were N?", min=1)
    ] = None
    spot: Annotated[
        bool | None, typer.Option("--spot/--no-spot", help="What if VMs were spot, or not?")
    ] = None
    boot_s: Annotated[
        float | None,
        typer.Option(help="From RUNNING to READY; else what was seen, or 90.", min=0),
    ] = None
    rotations: Annotated[int, typer.Option(help="Shifts of the supply.", min=1, max=48)] = 3
    seed: Annotated[int, typer.Option(help="Of everything that is made up.", min=0)] = 1
    make_traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Only write made-up traces there.")
    ] = None
    api: Api = None


@command
def whatif(wanted: WhatifOptions) -> Answer | None:
    """What if I added a region, raised a limit, used spot: replays jobs against a supply.

    The planner is the service's own, the cloud is replayed. Jobs and supply come from files, or
    from the history of a cluster of the stack that runs (--cluster); what the history does not
    hold is assumed, and said. With several changes each is shown alone, then all together.

    \b
    Examples:
      zen whatif --make-traces traces --days 1
      zen whatif --jobs traces/jobs.csv --supply traces/supply.csv --add-region synth-region6
      zen whatif --jobs traces/jobs.csv --supply traces/supply.csv --vm-max 40 --spot
      zen whatif --cluster 1xl4 --vm-max 16
      zen whatif --cluster 1xl4 --drop-region us-east4 --json
    """
    from sim.replay.physics import ReplayPhysics
    from sim.replay.product import Setup
    from sim.replay.whatif import Change, Present, ask

    if wanted.make_traces is not None:
        _make_traces(wanted.make_traces, wanted.days, wanted.seed)
        return None
    told, past = _history(wanted.cluster, wanted.api, wanted.seed) if wanted.cluster else ({}, None)
    work, series = _inputs(wanted, past)
    if wanted.group:
        work = work.of_group(wanted.group)
    work = work.one_vm_each().window(wanted.days) if wanted.jobs else work.latest(wanted.days)
    added = tuple(wanted.add_region or ())
    present = Present(
        work=work,
        supply=series,
        regions=_in_use(series, tuple(wanted.region or ()), added),
        setup=Setup(wanted.vm_max_now or told.get("vm_max") or VM_MAX, spot=bool(told.get("spot"))),
        physics=ReplayPhysics(boot_s=_boot_s(wanted.boot_s, past)),
        spot_supply=_priced(series, wanted.spot_prices) if wanted.spot_prices else None,
    )
    assumed = _assumed(wanted, past)
    if wanted.spot and wanted.spot_prices is None:
        assumed += ("spot costs the same (other prices: --spot-prices)",)
    if wanted.spot or present.setup.spot:
        assumed += ("jobs save when SIGTERM tells them that their spot VM is about to be taken",)
    change = Change(added, tuple(wanted.drop_region or ()), wanted.vm_max, wanted.spot)
    answers = ask(
        present,
        change,
        rotations=wanted.rotations,
        seed=wanted.seed,
        workers=os.cpu_count() or 1,
        told=_progress,
    )
    notes = (*present.work.notes, *assumed)
    return Answer(_as_json(present, answers, notes), _text(present, answers), notes)


def _make_traces(folder: Path, days: float, seed: int) -> None:
    """For people who have none: the formats of the recorded ones."""
    from sim.replay.synthetic import (
        Recipe,
        jobs_csv,
        make_jobs,
        make_supply,
        prices_csv,
        supply_csv,
    )

    recipe = Recipe(seed=seed, days=days)
    supply = make_supply(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "jobs.csv": jobs_csv(make_jobs(recipe)),
        "supply.csv": supply_csv(supply),
        "prices.csv": prices_csv(supply),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        say(f"wrote {folder / name}")


def _boot_s(named: float | None, past: RecordedHistory | None) -> float:
    seen = past.boot_s if past is not None else None
    return next((s for s in (named, seen) if s is not None), BOOT_S)


def _inputs(wanted: WhatifOptions, past: RecordedHistory | None) -> tuple[Workload, Supply]:
    """Files first, then the history; one of them must say what came and what there was."""
    from sim.replay.supply import load_supply
    from sim.replay.workload import load_jobs

    jobs, supply = wanted.jobs, wanted.supply
    for option, named in (("--jobs", jobs), ("--supply", supply)):
        if past is None and not named:
            raise typer.BadParameter(f"{option} is missing: name both files, or a --cluster")
    work = past.work if past and not jobs else load_jobs(jobs or Path())
    series = past.supply if past and not supply else load_supply(supply or Path())
    return work, _priced(series, wanted.prices) if wanted.prices else series


def _assumed(wanted: WhatifOptions, past: RecordedHistory | None) -> tuple[str, ...]:
    found: list[str] = []
    if past is not None:
        # The first speaks of jobs, the others of the supply.
        found += past.assumed[:1] if not wanted.jobs else ()
        found += past.assumed[1:] if not wanted.supply else ()
    if wanted.supply and not wanted.prices:
        found.append("no --prices: every zone costs a dollar per hour")
    if wanted.supply:
        found.append("the highest count of the supply means that many or more")
    return tuple(found)


def _history(cluster: str, api: str | None, seed: int) -> tuple[Json, RecordedHistory]:
    from sim.replay.history import past_of

    with Client(api_address(api)) as client:
        clusters = {c["name"]: c for c in client.get("/clusters")["clusters"]}
        if cluster not in clusters:
            raise NotFound(f"no cluster {cluster}: there are {', '.join(sorted(clusters))}")
        query: Json = {"cluster": cluster, "page_size": PAGE}
        page = client.get("/jobs", query)
        client.read_on(page, "/jobs", query, "jobs", JOBS_MAX)
        if page.get("next_page_token"):
            note(f"only the newest {JOBS_MAX} jobs are looked at")
        places = client.get("/capacity", {"cluster": cluster})["places"]
    return clusters[cluster], past_of(clusters[cluster], page["jobs"], places, seed)


def _in_use(supply: Supply, named: tuple[str, ...], added: tuple[str, ...]) -> tuple[str, ...]:
    from sim.replay.whatif import zones_of

    extra = set(zones_of(supply, added))
    used = zones_of(supply, named) if named else [z.name for z in supply.zones]
    kept = tuple(name for name in used if name not in extra)
    if not kept:
        raise typer.BadParameter("no region is in use now: --add-region takes the last one away")
    return kept


def _priced(supply: Supply, path: Path) -> Supply:
    from sim.replay.supply import load_prices

    return supply.priced(load_prices(path))


def _progress(done: int, of: int) -> None:
    """One line that grows on a terminal; elsewhere some ten lines, so that a log stays readable."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done} of {of} replays" + ("\n" if done == of else ""))
        sys.stderr.flush()
    elif done * PROGRESS_LINES // of > (done - 1) * PROGRESS_LINES // of:
        note(f"{done} of {of} replays")


def _text(present: Present, answers: list[WhatIfResult]) -> list[str | Fitted]:
    work, first = present.work, answers[0]
    limits = f"{len(present.regions)} zones in use, vm_max {present.setup.vm_max}"
    rows = [
        (
            *(short(s) for s in (a.wait_mean_s, a.wait_p50_s, a.wait_p95_s)),
            money(a.usd) + _against(a.usd, first.usd, a is first),
            money(a.usd_wasted),
            f"{a.vm_hours:,.1f}",
            f"{a.wasted_hours:,.1f}",
            f"{a.taken:.0f}",
            a.vms_most,
            a.words,
        )
        for a in answers
    ]
    return [
        f"{len(work.jobs)} jobs, {work.gpu_hours:,.1f} GPU-hours: {work.source}",
        f"{limits}: {present.supply.source}",
        fitted(HEADINGS, rows, right=HEADINGS[:-1], below="WHAT"),
    ]


def _against(value: float, base: float, is_base: bool) -> str:
    return "" if is_base or base == 0 else f" ({100 * (value / base - 1):+.0f} %)"


def _as_json(present: Present, answers: list[WhatIfResult], assumed: tuple[str, ...]) -> Json:
    return {
        "jobs": len(present.work.jobs),
        "gpu_hours": round(present.work.gpu_hours, 3),
        "jobs_from": present.work.source,
        "supply_from": present.supply.source,
        "regions": list(present.regions),
        "vm_max": present.setup.vm_max,
        "spot": present.setup.spot,
        "assumed": list(assumed),
        "answers": [asdict(answer) for answer in answers],
    }
