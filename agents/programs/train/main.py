"""A job that steps by its profile and SM share, saves its progress, and resumes from there.

SIGUSR1 saves and continues; SIGTERM and SIGINT save and exit with 0. SIGTSTP saves, gives the device's memory back and
stops; SIGCONT takes the memory again and continues. It sleeps between steps.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agents.devices.simulated.client import SimulatedClient, attach
from agents.devices.simulated.refusals import CudaRefusal
from agents.http.pages import serve
from agents.programs.progress import VARIABLE, write_progress
from agents.programs.train import checkpoint, pace
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
        self.steps = self.saved = checkpoint.load(path) if path else 0

    def save(self) -> None:
        if self._path and self.steps != self.saved:
            checkpoint.save(self._path, self.steps)
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
    except (CudaRefusal, checkpoint.Damaged, OSError, ValueError) as error:
        print(f"gpuwright-train: {error}", file=sys.stderr)  # noqa: T201  its log is what it prints
        return 1
    share = device.limits.sm_percent if device else 100.0
    print(f"step {job.steps} at {share:g} % of the SMs, port {port}", flush=True)  # noqa: T201
    try:
        _run(job, device, pace.speed_at(args.speeds, share), args.steps, args.checkpoint_seconds)
    except CudaRefusal as error:
        print(f"gpuwright-train: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"ended at step {job.steps}, saved {job.saved}", flush=True)  # noqa: T201
    return 0


def _run(job: TrainingJob, device: SimulatedClient | None, per_second: float, steps: int, save_seconds: float) -> None:
    now = time.monotonic()
    due = pace.StepPace(per_second, now)
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
            due = pace.StepPace(per_second, now)  # nothing of the time that it stood still is caught up
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
    parser.add_argument("--speeds", type=pace.parse_speeds, default="100:10", help="SM%%:steps a second, ...")
    parser.add_argument("--steps", type=int, default=0, help="steps to make in total; 0: no end")
    parser.add_argument("--memory-gib", type=float, default=0.0, help="device memory, held from the start")
    parser.add_argument("--checkpoint", type=_file, default=None, help="file to save to and to resume from")
    parser.add_argument("--checkpoint-seconds", type=float, default=30.0, help="between automatic saves")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=None, help="of /healthz and /metrics; 0: any free port")
    return parser


def _file(text: str) -> Path | None:
    return Path(text) if text else None


if __name__ == "__main__":
    sys.exit(main())
