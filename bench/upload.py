"""How long a directory takes to get to the service: 10,000 files, 200 MB.

    python -m bench.upload [--rounds 3]

The first `zen submit` of the directory beside `tar | zstd` of the same one, then a submission with
one changed file. Each is a process of its own; files are in the page cache for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.local import ROOT, local_stack

FILES, BYTES = 10_000, 200_000_000
TIMES_OF_TAR = 3.0
PART_OF_BYTES = 0.05
PART_OF_TIME = 0.4
_WORDS = [f"name_{number}" for number in range(5000)]


def fill(root: Path, dice: random.Random) -> None:
    """Text that compresses as source code does, in a hundred directories."""
    for number in range(FILES):
        directory = root / f"pkg{number % 100}"
        directory.mkdir(parents=True, exist_ok=True)
        words = " ".join(dice.choices(_WORDS, k=1000))
        text = f"# {dice.random()}\n{words}\n"
        repeated = (text * (BYTES // FILES // len(text) + 1))[: BYTES // FILES]
        (directory / f"module{number}.py").write_text(repeated)
    (root / "train.py").write_text("print('ran')\n")


def submit(root: Path, environment: Mapping[str, str]) -> tuple[float, int]:
    """(seconds, bytes that were sent)."""
    words = ("submit", "--json", "--gpu-type", "l4", "--", "python3", "train.py")
    began = time.perf_counter()
    done = subprocess.run(
        [str(ROOT / "zen"), *words], check=True, env=environment, cwd=root, stdout=subprocess.PIPE
    )
    took = time.perf_counter() - began
    return took, int(json.loads(done.stdout)["workdir"]["sent_bytes"])


def packed(root: Path) -> float:
    """How many seconds `tar | zstd` takes for it."""
    script = f"tar -C {root} -cf - . | zstd -q -3 -c | wc -c"
    began = time.perf_counter()
    subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    first: list[float] = []
    tars: list[float] = []
    again: list[float] = []
    part = 0.0
    with local_stack() as stack, tempfile.TemporaryDirectory(prefix="zen-upload-") as place:
        for number in range(rounds):
            root = Path(place) / str(number)
            environment = {**os.environ, "ZEN_HOME": str(stack.home)}
            environment["XDG_CACHE_HOME"] = f"{place}/cache{number}"
            fill(root, random.Random(number))
            tars.append(packed(root))
            took, sent = submit(root, environment)
            first.append(took)
            (root / "pkg7" / "module7.py").write_text("changed = True\n")
            took, more = submit(root, environment)
            again.append(took)
            part = max(part, more / sent)
            print(
                f"round {number}: tar | zstd {tars[-1]:.2f} s, first {first[-1]:.2f} s "
                f"({sent / 1e6:.1f} MB), one changed {again[-1]:.2f} s ({more} bytes)"
            )
    times = statistics.median(a / b for a, b in zip(first, tars, strict=True))
    share = statistics.median(a / b for a, b in zip(again, first, strict=True))
    for name, value, most in (
        ("first submit ÷ tar | zstd", times, TIMES_OF_TAR),
        ("one changed file ÷ first, seconds", share, PART_OF_TIME),
        ("one changed file ÷ first, bytes", part, PART_OF_BYTES),
    ):
        print(f"{name}: {value:.3f} (at most {most}): {'ok' if value <= most else 'MISSED'}")


if __name__ == "__main__":
    main()
