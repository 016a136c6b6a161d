"""A job that steps by its profile and SM share, saves its progress, and resumes from there.

SIGUSR1 saves and continues; SIGTERM and SIGINT save and exit with 0. SIGTSTP saves, gives the device's memory back and
stops; SIGCONT takes the memory again and continues. It sleeps between steps.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agents.devices.simulated.client import SimulatedClient, attach
from agents.devices.simulated.refusals import CudaRefusal
from agents.host import durable
from agents.http.pages import serve
from agents.programs.progress import VARIABLE, write_progress
from agents.programs.serve import profile
from agents.prometheus.writing import format_families, single

_SIGNALS = (signal.SIGUSR1, signal.SIGTSTP, signal.SIGTERM, signal.SIGINT)
_SHORTEST_WAIT_SECONDS = 0.05
_BUSY_SECONDS = 1.0


class TrainingJob:
    """The steps done, and the steps saved."""

    def __init__(self, path: Path | None, device: SimulatedClient | None, progress: Path | None) -> None:
        self._path = path
        self._progress = progress
        self._device = device
        self.steps = self.saved = load_steps(path) if path else 0

    def save(self) -> None:
        if self._path and self.steps != self.saved:
            save_steps(self._path, self.steps)
            self.saved = self.steps

    def report_progress(self) -> None:
        """Writes the progress where the agent reads it."""
        if self._progress:
            write_progress(self._progress, self.steps, self.saved)

    def wait_in_host_memory(self) -> None:
        """Saves, gives the device's memory back and stops; takes it again once it may go on. Raises CudaRefusal."""
        self.save()
        self.report_progress()
        held_gib = self._device.memory_gib if self._device else 0.0
        if self._device:
            self._device.busy(0.0)
            self._device.hold(0.0)
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._device:
            self._device.hold(held_gib)

    def metrics(self) -> bytes:
        families = [
            single("gpuwright_train_steps_total", "counter", self.steps),
            single("gpuwright_train_saved_steps", "gauge", self.saved),
        ]
        if self._device is not None:
            memory = round(self._device.memory_gib * 2**30)
            families.append(single("gpuwright_train_sm_count", "gauge", self._device.sm_count))
            families.append(single("gpuwright_train_memory_bytes", "gauge", memory))
        return format_families(families).encode()


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    # Blocked and waited for, so that no handler interrupts a step or a write. Threads inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        device = attach(os.environ, args.memory_gib)
        reported = os.environ.get(VARIABLE, "")
        job = TrainingJob(args.checkpoint, device, Path(reported) if reported else None)
        job.report_progress()
        pages = {"/healthz": lambda: b"ok\n", "/metrics": job.metrics}
        port = serve((args.host, args.port), pages).port if args.port is not None else 0
    except (CudaRefusal, Damaged, OSError, ValueError) as error:
        print(f"gpuwright-train: {error}", file=sys.stderr)  # noqa: T201  its log is what it prints
        return 1
    share = device.limits.sm_percent if device else 100.0
    print(f"step {job.steps} at {share:g} % of the SMs, port {port}", flush=True)  # noqa: T201
    try:
        _run(job, device, speed_at(args.speeds, share), args.steps, args.checkpoint_seconds)
    except CudaRefusal as error:
        print(f"gpuwright-train: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"ended at step {job.steps}, saved {job.saved}", flush=True)  # noqa: T201
    return 0


def _run(job: TrainingJob, device: SimulatedClient | None, per_second: float, steps: int, save_seconds: float) -> None:
    now = time.monotonic()
    due = StepPace(per_second, now)
    save_at, busy_at = now + save_seconds, now
    wait = max(_SHORTEST_WAIT_SECONDS, 1 / per_second if per_second else save_seconds)
    while not steps or job.steps < steps:
        received = signal.sigtimedwait(_SIGNALS, min(wait, _BUSY_SECONDS))
        now = time.monotonic()
        job.steps += due.due(now)
        if steps:
            job.steps = min(job.steps, steps)
        if received and received.si_signo not in (signal.SIGUSR1, signal.SIGTSTP):
            break
        if received and received.si_signo == signal.SIGTSTP:
            job.wait_in_host_memory()
            now = save_at = busy_at = time.monotonic()
            due = StepPace(per_second, now)  # nothing of the time that it stood still is caught up
        if received or now >= save_at:
            job.save()
            save_at = now + save_seconds
        if now >= busy_at:
            job.report_progress()
            if device:
                device.busy(1.0)
            busy_at = now + _BUSY_SECONDS
    job.save()
    job.report_progress()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuwright-train", description=__doc__)
    parser.add_argument("--speeds", type=parse_speeds, default="100:10", help="SM%%:steps a second, ...")
    parser.add_argument("--steps", type=int, default=0, help="steps to make in total; 0: no end")
    parser.add_argument("--memory-gib", type=float, default=0.0, help="device memory, held from the start")
    parser.add_argument("--checkpoint", type=_file, default=None, help="file to save to and to resume from")
    parser.add_argument("--checkpoint-seconds", type=float, default=30.0, help="between automatic saves")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=None, help="of /healthz and /metrics; 0: any free port")
    return parser


def _file(text: str) -> Path | None:
    return Path(text) if text else None


class Damaged(Exception):
    """An existing checkpoint cannot be read. Starting at 0 would lose its steps, so a person must decide."""


def load_steps(path: Path) -> int:
    """Returns the steps done so far; 0 when there is no checkpoint."""
    try:
        document = json.loads(path.read_bytes())
        steps = document["steps"]
        if type(steps) is not int or steps < 0:
            raise ValueError(f"steps is {steps!r}")
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"cannot read checkpoint {path}: {error}") from error
    return steps


def save_steps(path: Path, steps: int) -> None:
    """Replaces the checkpoint; a kill at any moment leaves the old one or the new one."""
    durable.write(path, json.dumps({"steps": steps}).encode())


LONGEST_PAUSE_SECONDS = 1.0  # a process that was stopped for an hour does not catch up on all of it


def parse_speeds(text: str) -> tuple[tuple[float, float], ...]:
    """Parses `10:1.1,50:5.5,100:6.1`: SM share in percent and steps a second. ValueError names the fault."""
    points = []
    for part in text.split(","):
        share, _, speed = part.partition(":")
        point = (float(share), float(speed or "nan"))
        if not (0 < point[0] <= 100 and 0 < point[1] < math.inf):
            raise ValueError(f"{part!r} must be an SM% in 1..100, a colon, and steps a second above 0")
        points.append(point)
    points.sort()
    if len({share for share, _ in points}) < len(points):
        raise ValueError(f"{text!r} contains an SM% twice")
    return tuple(points)


def speed_at(points: tuple[tuple[float, float], ...], sm_percent: float) -> float:
    """Interpolates linearly, through 0 below the first point and level after the last."""
    return profile.interpolate(((0.0, 0.0), *points), sm_percent)


class StepPace:
    """The steps that have become due since the beginning; `now` is any monotonic clock."""

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second = per_second
        self._counted_to = now
        self._fraction = 0.0

    def due(self, now: float) -> int:
        passed = min(now - self._counted_to, LONGEST_PAUSE_SECONDS)
        self._counted_to = now
        self._fraction += passed * self.per_second
        whole = int(self._fraction)
        self._fraction -= whole
        return whole


if __name__ == "__main__":
    sys.exit(main())
