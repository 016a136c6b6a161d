"""A training job in PyTorch that saves, resumes and reports its progress; it runs on a CPU, too.

It learns to add two numbers. Each step draws its own data by its number, so a run that was stopped and resumed a
hundred times ends with the same weights as a run that was not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch

BATCH, WIDTH = 64, 32
STOPPED = 3  # steps are left: start it again


def main() -> int:
    args = _arguments()
    folder = Path(os.environ.get("GPUWRIGHT_CHECKPOINTS", "."))
    stops: list[int] = []
    waits: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    signal.signal(signal.SIGTSTP, lambda number, _: waits.append(number))
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    step = saved = load(folder, model, optimizer)
    print(f"begins at step {step} of {args.steps}", flush=True)
    report(step, saved)
    saved_at = time.monotonic()
    while step < args.steps and not stops:
        loss = train(step, model, optimizer)
        step += 1
        is_asked = bool(waits)
        if is_asked or time.monotonic() - saved_at >= args.save_seconds:
            save(folder, step, model, optimizer)
            saved, saved_at = step, time.monotonic()
            print(f"step {step}: loss {loss:.4f}", flush=True)
        report(step, saved)
        if is_asked:  # it has saved
            waits.clear()  # before it stands still: it may be asked again as it goes on
            stand_still()
        time.sleep(args.pause_seconds)
    save(folder, step, model, optimizer)
    report(step, step)
    print(f"ends at step {step}", flush=True)
    return STOPPED if step < args.steps else 0


def train(step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Does one step on the data of that step; returns its loss."""
    pairs = torch.rand((BATCH, 2), generator=torch.Generator().manual_seed(step))
    loss = torch.nn.functional.mse_loss(model(pairs), pairs.sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def load(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Takes up the last save; returns its step."""
    try:
        state = torch.load(folder / "last.pt", weights_only=True)
    except FileNotFoundError:
        return 0
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(folder: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Replaces the last save: a kill at any moment leaves the old or the new one, and never half of it."""
    fresh = folder / "last.pt.new"
    with fresh.open("wb") as file:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / "last.pt")


def report(step: int, saved: int) -> None:
    """Writes the progress where the node reads it: steps so far, and those that the last save has."""
    path = os.environ.get("GPUWRIGHT_PROGRESS")
    if path:
        fresh = Path(path + ".new")
        fresh.write_text(json.dumps({"units": step, "saved": saved}))
        fresh.replace(path)


def stand_still() -> None:
    """Stops itself until SIGCONT. A training on a GPU moves its tensors to the host before, and back afterwards."""
    os.kill(os.getpid(), signal.SIGSTOP)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=int(os.environ.get("GPUWRIGHT_UNITS", "1000")))
    parser.add_argument("--save-seconds", type=float, default=10.0)
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="after each step, to be slow")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
