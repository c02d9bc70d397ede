"""pgqueuer on this machine, as a peer: how fast jobs get into a queue that is a table.

    python -m bench.pgqueuer [--seconds 5]
    python -m bench.pgqueuer --install

PostgreSQL is the one of the local stack, with the same settings; the client shares the machine's
cores with it. Enqueued one by one on 16 and on 64 connections, and 1,000 in one statement on one.
--install fetches pgqueuer and asyncpg from PyPI into a virtual environment of their own, inside
.venv.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import psycopg
from rich.table import Table

from bench.figures import tell
from bench.local import ROOT, postgres_server
from bench.report import figure, show

HOME = ROOT / ".venv" / "peers" / "pgqueuer"
PACKAGES = ("pgqueuer", "asyncpg")
CLIENT = Path(__file__).parent / "pgqueuer_client.py"
DATABASE = "pgqueuer"
BATCH = 1000
LOADS = {
    "single_16_per_s": (16, 1),
    "single_64_per_s": (64, 1),
    "batch_per_s": (1, BATCH),
}
"""Name → connections, jobs per statement."""
TOLD = tuple(LOADS)
GRACE_S = 60.0


def interpreter() -> Path | None:
    """Of the environment that has it; None: it is not installed."""
    found = HOME / "bin" / "python"
    return found if found.exists() and any(HOME.glob("lib/*/site-packages/pgqueuer")) else None


def install() -> None:
    subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
    subprocess.run([str(HOME / "bin" / "pip"), "install", "--quiet", *PACKAGES], check=True)


def rate(python: Path, url: str, seconds: float, load: tuple[int, int]) -> float:
    words = (url, str(seconds), *map(str, load))
    done = subprocess.run(
        [str(python), "-I", str(CLIENT), *words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds + GRACE_S,
    )
    return float(done.stdout)


def measure(python: Path, seconds: float) -> dict[str, float]:
    with postgres_server("zen-pgqueuer-", fsync=True) as (_, url):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{DATABASE}"'.encode())
        base, _, query = url.partition("?")
        fresh = f"{base.rpartition('/')[0]}/{DATABASE}?{query}"
        return {name: rate(python, fresh, seconds, load) for name, load in LOADS.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--install", action="store_true", help="fetch it first")
    args = parser.parse_args()
    if args.install:
        install()
    if (python := interpreter()) is None:
        sys.stderr.write("not installed: python -m bench.pgqueuer --install\n")
        return 2
    found = measure(python, args.seconds)
    tell(**found)
    table = Table("connections", "jobs per statement", "jobs per second", title="pgqueuer")
    for name, per_s in found.items():
        table.add_row(*map(str, LOADS[name]), figure(per_s))
    show(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
