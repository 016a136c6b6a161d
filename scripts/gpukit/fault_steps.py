"""Records what one client does to another: by a kill, by a fault, and by lifting its own limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from agents.keeper.drivers import CopyFailed
from agents.profiling.copy import WarmCopy
from agents.profiling.measure import time_copy
from agents.seams.device import DeviceError
from scripts.gpukit.stand import KERNELS, Stand, StepSkipped

LOAD = KERNELS[0]
HALF, QUARTER = 50.0, 25.0
SETTLE_SECONDS, PAUSE_SECONDS = 3.0, 0.05
LIMIT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"


def kill_one_of_two(stand: Stand) -> dict[str, object]:
    """Kills one of two clients while it computes; what the other one and the next one do is recorded."""
    with _warm(stand, "kept", 1) as other:
        with _warm(stand, "killed", 2) as copy:
            running = copy.copy.running
            assert running is not None
            busy = threading.Thread(target=lambda: _time(stand, copy, 2))
            busy.start()
            time.sleep(stand.options.seconds / 2)
            os.kill(running.pid, signal.SIGKILL)
            states = _watch(stand)
            busy.join()
        after = _time(stand, other, 1)
    return {"other": after, "states": states, "next": _start_next(stand)}


def see_a_fault(stand: Stand) -> dict[str, object]:
    """Lets a client write where it may not; what the other client, the daemon and the next client do is recorded."""
    _refuse_stand_in(stand)
    failed_to_end = ""
    try:
        with _warm(stand, "kept", 1) as other:
            with _stranger(stand, "fault", _limits(stand)) as (_, said):
                states = _watch(stand)
            after = _time(stand, other, 1)
            running = other.copy.running
            is_alive = running is not None and stand.drivers.runtime.alive(running)
    except (CopyFailed, DeviceError) as error:
        failed_to_end = str(error)
    return {
        "said": said,
        "states": states,
        "other": after,
        "other_runs": is_alive,
        "end": failed_to_end,
        "after": _watch(stand),
        "next": _start_next(stand),
    }


def lift_limits(stand: Stand) -> dict[str, object]:
    """Records what a client sees that takes its limit, or its daemon, out of its own environment."""
    _refuse_stand_in(stand)
    stand.drivers.mps.start(stand.gpu.uuid)
    limits = _limits(stand)
    kinds = {
        "as given": limits,
        "without its limit": _without(limits, LIMIT),
        "without its daemon": _without(limits, PIPE),
    }
    rows = []
    for kind, environment in kinds.items():
        with _stranger(stand, "see", environment) as (pid, said):
            rows.append({"kind": kind, "sees": said, "is_client": pid in stand.drivers.mps.clients(stand.gpu.uuid)})
    return {"sm_percent": QUARTER, "of": stand.gpu.sm_count, "rows": rows}


def _refuse_stand_in(stand: Stand) -> None:
    if stand.options.is_stand_in:
        raise StepSkipped("a stand-in computes nothing")


def _limits(stand: Stand) -> dict[str, str]:
    return stand.drivers.mps.environment(stand.gpu.uuid, QUARTER, 1.0)


def _without(environment: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key != name}


@contextmanager
def _warm(stand: Stand, name: str, sequence: int) -> Iterator[WarmCopy]:
    with stand.warm(stand.task(name, stand.args(LOAD), HALF, sequence=sequence)) as copy:
        yield copy


@contextmanager
def _stranger(stand: Stand, word: str, limits: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yields the PID of a client that the agent does not know, and the line that it printed."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    words = [sys.executable, "-P", "-m", "scripts.gpukit.stranger", word]
    with subprocess.Popen(
        words, env=ours | dict(limits), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.stdin.close()


def _time(stand: Stand, copy: WarmCopy, sequence: int) -> str:
    """Returns how many batches the copy answered, or why it did not."""
    task = stand.task("kept", stand.args(LOAD), HALF, sequence=sequence)
    try:
        return f"{time_copy(task, copy, stand.seat, lambda elapsed: None).samples} batches"
    except (CopyFailed, DeviceError) as error:
        return str(error)


def _watch(stand: Stand) -> list[str]:
    """Returns the states of MPS in their order while they settle."""
    states: list[str] = []
    ends_at = time.monotonic() + min(SETTLE_SECONDS, 3 * stand.options.seconds)
    while time.monotonic() < ends_at:
        try:
            state = stand.drivers.mps.state(stand.gpu.uuid).value
        except DeviceError as error:
            state = str(error)
        if not states or states[-1] != state:
            states.append(state)
        time.sleep(PAUSE_SECONDS)
    return states


def _start_next(stand: Stand) -> str:
    """Returns what a copy does that starts afterwards."""
    try:
        with _warm(stand, "next", 3) as copy:
            return _time(stand, copy, 3)
    except (CopyFailed, DeviceError) as error:
        return str(error)
