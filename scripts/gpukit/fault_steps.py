"""Records what one client does to another: by a kill, by a fault, and by hanging."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

from agents.keeper.drivers import CopyFailed
from agents.profiling.copy import WarmCopy, end_copy
from agents.seams.device import DeviceError
from scripts.gpukit.clients import (
    PAUSE_SECONDS,
    QUARTER,
    refuse_stand_in,
    start_next,
    start_stranger,
    start_warm,
    time_load,
    watch_states,
)
from scripts.gpukit.stand import Stand

TERMINATED, BY_THE_AGENT = "terminated by MPS, then killed", "ended by the agent"
WAYS = ("killed", TERMINATED, BY_THE_AGENT)
HANG_WATCH_SECONDS = 1.0
FREE_SECONDS = 15.0


def kill_one_of_two(stand: Stand) -> dict[str, object]:
    """Kills one of two clients while it computes; what the other one and the next one do is recorded."""
    with start_warm(stand, "kept", 1) as other:
        with start_warm(stand, "killed", 2) as copy:
            busy = _keep_busy(stand, copy)
            os.kill(_pid(copy), signal.SIGKILL)
            states = watch_states(stand)
            busy.join()
        after = time_load(stand, other)
    return {"other": after, "states": states, "next": start_next(stand)}


def see_a_fault(stand: Stand) -> dict[str, object]:
    """Lets a client write where it may not; what the other client, the daemon and the next client do is recorded."""
    refuse_stand_in(stand)
    failed_to_end = ""
    try:
        with start_warm(stand, "kept", 1) as other:
            limits = stand.drivers.mps.environment(stand.gpu.uuid, QUARTER, 1.0)
            with start_stranger(limits, "fault") as (_, said):
                states = watch_states(stand)
            after = time_load(stand, other)
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
        "after": watch_states(stand),
        "next": start_next(stand),
    }


def hang_one_of_two(stand: Stand) -> dict[str, object]:
    """Stops one of two clients while it computes, and ends it: what the other one, a third and MPS do is recorded."""
    rows = []
    with start_warm(stand, "kept", 1) as other:
        before = time_load(stand, other)
        for number, way in enumerate(stand.time.take(WAYS[: 1 if stand.options.is_short else len(WAYS)])):
            rows.append({"way": way} | _hang(stand, other, 2 + 2 * number, way))
    return {"before": before, "rows": rows}


def _hang(stand: Stand, other: WarmCopy, sequence: int, way: str) -> dict[str, object]:
    used_gib = [_read_used_gib(stand)]
    with start_warm(stand, "hung", sequence) as copy:
        pid, busy = _pid(copy), _keep_busy(stand, copy)
        os.kill(pid, signal.SIGSTOP)
        try:
            used_gib.append(_read_used_gib(stand))
            row: dict[str, object] = {
                "states": watch_states(stand, HANG_WATCH_SECONDS),
                "held_by": _holders(stand, pid),
                "other": time_load(stand, other),
                "third": start_next(stand, sequence + 1),
            }
            if way == TERMINATED:
                row |= _terminate(stand, pid)
            elif way == BY_THE_AGENT:
                began = time.monotonic()
                end_copy(copy.copy, copy.filled, stand.seat)
                row["ending_seconds"] = _count_since(began)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        row |= _wait_until_free(stand, pid)
        used_gib.append(_read_used_gib(stand))
        busy.join()
    after = {"after": time_load(stand, other), "states_after": watch_states(stand, HANG_WATCH_SECONDS)}
    return row | {"used_gib": used_gib} | after


def _terminate(stand: Stand, pid: int) -> dict[str, object]:
    """Lets MPS terminate the client, as the agent does before it kills a copy that ends in no other way."""
    began = time.monotonic()
    try:
        outcome = "confirmed" if stand.drivers.mps.terminate(stand.gpu.uuid, pid) else "not confirmed"
    except DeviceError as error:
        outcome = str(error)
    return {
        "termination": outcome,
        "termination_seconds": _count_since(began),
        "held_after_it_by": _holders(stand, pid),
    }


def _wait_until_free(stand: Stand, pid: int) -> dict[str, object]:
    """Returns when nobody listed the process any more that was just killed, and who does if that does not come."""
    began = time.monotonic()
    while (holders := _holders(stand, pid)) and time.monotonic() < began + FREE_SECONDS:
        time.sleep(PAUSE_SECONDS)
    return {"free_after_seconds": _count_since(began), "still_held_by": holders}


def _holders(stand: Stand, pid: int) -> list[str]:
    """Returns who lists a process as one that holds the device, as the agent asks before it believes memory free."""
    drivers, uuid = stand.drivers, stand.gpu.uuid
    found = []
    try:
        if any(process.pid == pid for process in drivers.device.processes(uuid)):
            found.append("NVML")
        if pid in drivers.mps.clients(uuid):
            found.append("MPS")
    except DeviceError as error:
        found.append(str(error))
    return found


def _keep_busy(stand: Stand, copy: WarmCopy) -> threading.Thread:
    """Returns, in the middle of its computing, the thread that keeps the copy computing for one timing."""
    busy = threading.Thread(target=lambda: time_load(stand, copy))
    busy.start()
    time.sleep(stand.options.seconds / 2)
    return busy


def _pid(copy: WarmCopy) -> int:
    assert copy.copy.running is not None
    return copy.copy.running.pid


def _read_used_gib(stand: Stand) -> float:
    return round(stand.drivers.device.read(stand.gpu.uuid).memory_used_gib, 3)


def _count_since(began: float) -> float:
    return round(time.monotonic() - began, 2)
