"""Training that survives its VM: checkpoints, resumes, reports progress, yields to SIGTERM.

    zen submit --gpus 1 --name train --wait -- python3 "$PWD/examples/train.py" --steps 60

That is a file of this machine: with `zen up` and `zen node` jobs run here. Take the VM away in the
middle (zen sim crash VM, or zen sim preempt VM on a spot cluster): the next attempt goes on from
the last checkpoint. The model is a straight line fitted by gradient descent, so that the example
needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

POINTS = [(x / 50, 3 * (x / 50) + 2) for x in range(100)]
RATE = 0.1


@dataclass(frozen=True)
class Model:
    """y = slope · x + offset, after so many steps."""

    step: int = 0
    slope: float = 0.0
    offset: float = 0.0

    def loss(self) -> float:
        return sum((self.slope * x + self.offset - y) ** 2 for x, y in POINTS) / len(POINTS)

    def trained(self) -> Model:
        """One step of gradient descent later."""
        errors = [(x, self.slope * x + self.offset - y) for x, y in POINTS]
        return Model(
            self.step + 1,
            self.slope - RATE * 2 * sum(e * x for x, e in errors) / len(errors),
            self.offset - RATE * 2 * sum(e for _, e in errors) / len(errors),
        )


class Reporter:
    """Progress for the scheduler: JSON lines in the file that it names."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._file = os.environ.get("ZEN_STATUS_FILE")

    def say(self, step: int, *, saved: bool = False) -> None:
        if self._file is None:
            return
        line = {"step": step, "total": self._total} | ({"checkpoint": step} if saved else {})
        with Path(self._file).open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(line) + "\n")


def save(directory: Path, model: Model) -> None:
    """Whole or not at all: a VM may lose its power in the middle of a write."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / "model.json.new"
    with fresh.open("w", encoding="utf-8") as opened:
        json.dump(asdict(model), opened)
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(directory / "model.json")


def resume() -> Model:
    """The last checkpoint of an earlier attempt, or a model that knows nothing."""
    found = os.environ.get("ZEN_RESUME_FROM")
    if not found:
        return Model()
    try:
        saved = json.loads((Path(found) / "model.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Model()
    return Model(**saved)


def train(steps: int, step_s: float, save_every: int) -> int:
    """Trains to the last step; 143 if it was told to stop before."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    directory = Path(os.environ.get("ZEN_CHECKPOINT_DIR", "checkpoints"))
    reporter = Reporter(steps)
    model = resume()
    where = f"attempt {os.environ.get('ZEN_ATTEMPT', '1')} in {os.environ.get('ZEN_REGION', '-')}"
    print(f"{where}: from step {model.step} of {steps}", flush=True)
    while model.step < steps:
        model = model.trained()
        time.sleep(step_s)
        saved = bool(told) or model.step % save_every == 0 or model.step == steps
        if saved:
            save(directory, model)
            print(f"step {model.step}: loss {model.loss():.6f}, saved", flush=True)
        reporter.say(model.step, saved=saved)
        if told:
            print(f"told to stop (signal {told[0]}), checkpoint at step {model.step}", flush=True)
            return 128 + told[0]
    print(f"done: y = {model.slope:.3f} x + {model.offset:.3f}", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Fits a line, slowly.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-s", type=float, default=0.5, help="how slowly")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints")
    asked = parser.parse_args()
    return train(asked.steps, asked.step_s, asked.save_every)


if __name__ == "__main__":
    sys.exit(main())
