"""The same training job as train.py without any library: it saves, resumes and reports its progress.

It learns to add two numbers with two weights. Each step draws its own data by its number, so a run that was stopped and
resumed a hundred times ends with the same weights as a run that was not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

RATE = 0.05
STOPPED = 3  # steps are left: start it again


def main() -> int:
    args = _arguments()
    folder = Path(os.environ.get("GPUWRIGHT_CHECKPOINTS", "."))
    stops: list[int] = []
    waits: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    signal.signal(signal.SIGTSTP, lambda number, _: waits.append(number))
    step, weights = load(folder)
    saved, saved_at = step, time.monotonic()
    print(f"begins at step {step} of {args.steps}", flush=True)
    report(step, saved)
    while step < args.steps and not stops:
        weights = train(step, weights)
        step += 1
        is_asked = bool(waits)
        if is_asked or time.monotonic() - saved_at >= args.save_seconds:
            save(folder, step, weights)
            saved, saved_at = step, time.monotonic()
            print(f"step {step}: weights {weights[0]:.3f} {weights[1]:.3f}", flush=True)
        report(step, saved)
        if is_asked:  # it has saved
            waits.clear()  # before it stands still: it may be asked again as it goes on
            stand_still()
        time.sleep(args.pause_seconds)
    save(folder, step, weights)
    report(step, step)
    print(f"ends at step {step}", flush=True)
    return STOPPED if step < args.steps else 0


def train(step: int, weights: tuple[float, float]) -> tuple[float, float]:
    """Does one step on the data of that step; returns the new weights."""
    draw = random.Random(step)
    first, second = draw.random(), draw.random()
    error = weights[0] * first + weights[1] * second - (first + second)
    return (weights[0] - RATE * error * first, weights[1] - RATE * error * second)


def load(folder: Path) -> tuple[int, tuple[float, float]]:
    """Returns the step and the weights of the last save."""
    try:
        state = json.loads((folder / "last.json").read_text())
    except FileNotFoundError:
        return 0, (0.0, 0.0)
    return int(state["step"]), (state["weights"][0], state["weights"][1])


def save(folder: Path, step: int, weights: tuple[float, float]) -> None:
    """Replaces the last save: a kill at any moment leaves the old or the new one, and never half of it."""
    fresh = folder / "last.json.new"
    with fresh.open("w") as file:
        json.dump({"step": step, "weights": weights}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / "last.json")


def report(step: int, saved: int) -> None:
    """Writes the progress where the node reads it: steps so far, and those that the last save has."""
    path = os.environ.get("GPUWRIGHT_PROGRESS")
    if path:
        fresh = Path(path + ".new")
        fresh.write_text(json.dumps({"units": step, "saved": saved}))
        fresh.replace(path)


def stand_still() -> None:
    """Stops itself until SIGCONT. A training on a GPU moves what it holds there to the host before, and back."""
    os.kill(os.getpid(), signal.SIGSTOP)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=int(os.environ.get("GPUWRIGHT_UNITS", "1000")))
    parser.add_argument("--save-seconds", type=float, default=10.0)
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="after each step, to be slow")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
