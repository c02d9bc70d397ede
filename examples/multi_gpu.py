"""A job over several GPUs of one VM: one worker process for each GPU it was given.

    zen submit --gpus 4 --gpu-type a100-40gb --wait -- python3 "$PWD/examples/multi_gpu.py"

Each worker sees one GPU alone, as data-parallel training would; here it adds up its share of
a sum, so that the example needs nothing but Python.
"""

from __future__ import annotations

import os
import subprocess
import sys

NUMBERS = 4_000_000

WORKER = """
import os, sys
rank, workers, numbers = map(int, sys.argv[1:])
print(f"worker {rank} of {workers} on GPU {os.environ['CUDA_VISIBLE_DEVICES']}", file=sys.stderr)
print(sum(range(rank, numbers, workers)))
"""


def main() -> int:
    """Starts the workers, adds up their answers, checks the result."""
    gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if not gpus:
        print("no GPU was given to this job (CUDA_VISIBLE_DEVICES is empty)", file=sys.stderr)
        return 1
    print(f"GPUs {', '.join(gpus)} in {os.environ.get('ZEN_REGION', 'no region')}", flush=True)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), str(len(gpus)), str(NUMBERS)],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, gpu in enumerate(gpus)
    ]
    answers = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode != 0 for worker in workers):
        print("a worker failed", file=sys.stderr)
        return 1
    total = sum(int(answer) for answer in answers)
    expected = NUMBERS * (NUMBERS - 1) // 2
    print(f"sum {total}, expected {expected}")
    return 0 if total == expected else 1


if __name__ == "__main__":
    sys.exit(main())
