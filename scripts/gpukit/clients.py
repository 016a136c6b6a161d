"""Starts clients of MPS for a step, and records what becomes of them: copies, and processes that no agent knows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from agents.contract.campaigns import ProfilingTask
from agents.keeper.drivers import CopyFailed
from agents.profiling.copy import WarmCopy, warm_copy
from agents.profiling.measure import time_copy
from agents.seams.device import DeviceError, Mps
from scripts.gpukit.stand import KERNELS, Stand, StepSkipped

LOAD = KERNELS[0]
HALF, QUARTER = 50.0, 25.0
SETTLE_SECONDS, PAUSE_SECONDS = 3.0, 0.05
START_SECONDS = 20.0


def refuse_stand_in(stand: Stand) -> None:
    if stand.options.is_stand_in:
        raise StepSkipped("a stand-in computes nothing")


@contextmanager
def start_warm(stand: Stand, name: str, sequence: int, sm_percent: float = HALF) -> Iterator[WarmCopy]:
    """Yields a copy of the load, and ends it afterwards. Raises CopyFailed, also where the driver leaves it waiting."""
    with start_task(stand, stand.task(name, stand.args(LOAD), sm_percent, sequence=sequence)) as copy:
        yield copy


@contextmanager
def start_task(stand: Stand, task: ProfilingTask) -> Iterator[WarmCopy]:
    ends_at = time.monotonic() + START_SECONDS

    def check() -> None:
        if time.monotonic() > ends_at:
            raise CopyFailed("not_warm", f"it was not ready within {START_SECONDS:g} s")

    with warm_copy(task, stand.gpu, stand.seat, check) as copy:
        yield copy


@contextmanager
def start_stranger(limits: Mapping[str, str], *words: str) -> Iterator[tuple[int, str]]:
    """Yields the PID of a process that no agent knows, and the line that it printed."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    argv = [sys.executable, "-P", "-m", "scripts.gpukit.stranger", *words]
    with subprocess.Popen(
        argv, env=ours | dict(limits), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.stdin.close()


def time_load(stand: Stand, copy: WarmCopy) -> str:
    """Returns how many batches the copy answers in the time of one timing, or why it answers none."""
    task = stand.task("load", {}, HALF)
    try:
        same = msgspec.structs.replace(task, most_seconds=task.least_seconds)
        found = time_copy(same, copy, stand.seat, lambda elapsed: None)
    except (CopyFailed, DeviceError) as error:
        return str(error)
    times = "" if stand.options.is_stand_in else f" of {found.latency_ms:.3g} ms"  # a stand-in's times are made up
    return f"{found.samples} batches{times}"


def start_next(stand: Stand, sequence: int = 3) -> str:
    """Returns what a further copy does."""
    try:
        with start_warm(stand, "next", sequence) as copy:
            return time_load(stand, copy)
    except (CopyFailed, DeviceError) as error:
        return str(error)


def start_daemon(mps: Mps, uuid: str) -> str:
    """Returns what becomes of the start of an MPS daemon."""
    try:
        mps.start(uuid)
    except DeviceError as error:
        return str(error)
    return "it started"


def watch_states(stand: Stand, seconds: float = SETTLE_SECONDS) -> list[str]:
    """Returns the states of MPS in their order while they settle."""
    states: list[str] = []
    ends_at = time.monotonic() + min(seconds, 3 * stand.options.seconds)
    while time.monotonic() < ends_at:
        try:
            state = stand.drivers.mps.state(stand.gpu.uuid).value
        except DeviceError as error:
            state = str(error)
        if not states or states[-1] != state:
            states.append(state)
        time.sleep(PAUSE_SECONDS)
    return states
