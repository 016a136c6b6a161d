"""Records what stands beside our MPS: limits that a client lifts, copies outside it, others' daemons, a full GPU."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from agents.contract.assignments import AssignedInstance
from agents.devices.mps import MpsControl
from agents.devices.mps.processes import is_mps
from agents.host import clocks
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import CopyFailed
from agents.keeper.ports import free_port
from agents.keeper.starting import NO_MPS, STRAY_SECONDS, StartContext, start_copy
from agents.profiling.copy import WarmCopy
from agents.runtime import Launch
from agents.seams.device import DeviceError
from agents.seams.mps_variables import VISIBLE_DEVICES_VARIABLE
from scripts.gpukit.clients import (
    LOAD,
    PAUSE_SECONDS,
    QUARTER,
    refuse_stand_in,
    start_daemon,
    start_next,
    start_stranger,
    start_task,
    start_warm,
    time_load,
)
from scripts.gpukit.stand import HOST, TEMPLATE, Args, Stand

LIMIT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
SERVER_NAME = "nvidia-cuda-mps-server"
END_SECONDS = 10.0
# GiB that others leave, and GiB that a copy claims then: too little for its context, and enough for that alone.
FULL = ((1 / 16, 0.5), (2.0, 4.0))


def lift_limits(stand: Stand) -> dict[str, object]:
    """Records what a client sees that takes its limit, or its daemon, out of its own environment."""
    refuse_stand_in(stand)
    stand.drivers.mps.start(stand.gpu.uuid)
    limits = stand.drivers.mps.environment(stand.gpu.uuid, QUARTER, 1.0)
    kinds = {
        "as given": limits,
        "without its limit": _drop_variable(limits, LIMIT),
        "without its daemon": _drop_variable(limits, PIPE),
    }
    rows = []
    for kind, environment in kinds.items():
        with start_stranger(environment, "see") as (pid, said):
            rows.append({"kind": kind, "sees": said, "is_client": pid in stand.drivers.mps.clients(stand.gpu.uuid)})
    return {"sm_percent": QUARTER, "of": stand.gpu.sm_count, "rows": rows}


def _drop_variable(environment: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key != name}


def run_outside(stand: Stand) -> dict[str, object]:
    """Runs a copy outside MPS, as copies on whole GPUs run, beside a limited one; both compute."""
    with start_warm(stand, "limited", 1, QUARTER) as limited:
        before = time_load(stand, limited)
        with _start_outside(stand) as (outside, verdict):
            found = {"verdict": verdict} | _describe_outside(stand, outside)
            times: list[str] = []
            busy = threading.Thread(target=lambda: times.append(time_load(stand, outside)))
            busy.start()
            beside = time_load(stand, limited)
            busy.join()
        after = time_load(stand, limited)
    limits = {"sm_percent": QUARTER, "of": stand.gpu.sm_count}
    return limits | found | {"before": before, "beside": beside, "after": after, "outside": times[0]}


@contextmanager
def _start_outside(stand: Stand) -> Iterator[tuple[WarmCopy, str]]:
    """Yields the copy, and what the agent says to it, which takes it for one that must have limits."""
    drivers, uuid = stand.drivers, stand.gpu.uuid
    wanted = AssignedInstance(
        "kit-outside", stand.gpu.index, template=TEMPLATE, args=dict(stand.args(LOAD)), sm_percent=QUARTER
    )
    copy = NodeCopy("kit-outside.1", wanted, uuid, port=free_port(HOST, ()))
    filled = stand.filler.fill(copy)
    running = drivers.runtime.start(Launch(copy.id, uuid, filled, copy.port, NO_MPS))
    assert running is not None, "a process runs at once"
    try:
        began = clocks.seconds()
        copy = NodeCopy(copy.id, wanted, uuid, Stage.VERIFYING, copy.port, running=running, since=began)
        verdict = "it passes for a client"
        try:
            while copy.stage is Stage.VERIFYING:
                copy = start_copy(StartContext(copy, filled, stand.gpu), drivers, clocks.seconds()) or copy
                if clocks.seconds() > began + STRAY_SECONDS + 5 * stand.options.seconds:
                    verdict = "nothing yet"
                    break
                time.sleep(PAUSE_SECONDS)
        except (CopyFailed, DeviceError) as error:
            verdict = str(error)
        yield WarmCopy(copy, filled, stand.gpu, 0.0), verdict
    finally:
        drivers.runtime.end(running, force=True)
        ends_at = time.monotonic() + END_SECONDS
        while drivers.runtime.alive(running) and time.monotonic() < ends_at:
            time.sleep(PAUSE_SECONDS)


def _describe_outside(stand: Stand, outside: WarmCopy) -> dict[str, object]:
    drivers, copy = stand.drivers, outside.copy
    assert copy.running is not None
    pids = drivers.runtime.pids(copy.running)
    served = drivers.talk.served(copy.listens_at, outside.filled)
    held = [process.memory_gib for process in drivers.device.processes(copy.gpu) if process.pid in pids]
    return {
        "runs": drivers.runtime.alive(copy.running),
        "sees": served and served.sm_count,
        "is_listed": bool(held),
        "memory_gib": held[0] and round(held[0], 3) if held else None,
        "is_client": bool(pids & drivers.mps.clients(copy.gpu)),
        "said": drivers.runtime.log_tail(copy.id).strip().splitlines()[-3:],
    }


def meet_a_foreign_daemon(stand: Stand) -> dict[str, object]:
    """Starts another owner's daemon, then ours, then a process that only has the name of a server."""
    uuid, ours = stand.gpu.uuid, stand.drivers.mps
    assert isinstance(ours, MpsControl)
    theirs = MpsControl(stand.folder / "theirs", stand.program)
    try:
        theirs.start(uuid)
        with start_stranger(theirs.environment(uuid, QUARTER, 1.0), "see") as (pid, said):
            found = {
                "client_sees": said,
                "is_client": pid in theirs.clients(uuid),
                "we_find": len(ours.find_foreign(uuid)),
                "they_find": len(theirs.find_foreign(uuid)),
                "our_start": start_daemon(ours, uuid),
            }
        theirs.stop(uuid)
        with start_warm(stand, "next", 1) as copy:
            found |= {
                "next": time_load(stand, copy),
                "they_find_then": len(theirs.find_foreign(uuid)),
                "their_start": start_daemon(theirs, uuid),
            }
        with _run_namesake(stand):
            found |= {"namesakes": len(ours.find_foreign(uuid)), "start_beside_one": start_daemon(ours, uuid)}
        end = {"we_find_at_the_end": len(ours.find_foreign(uuid)), "start_at_the_end": start_daemon(ours, uuid)}
        return found | end
    finally:
        theirs.stop(uuid)


@contextmanager
def _run_namesake(stand: Stand) -> Iterator[None]:
    """Runs a process that does nothing, and has the name of a server of MPS."""
    link = stand.folder / SERVER_NAME
    link.symlink_to(shutil.which("sleep") or "/bin/sleep")
    ends_at = time.monotonic() + END_SECONDS
    with subprocess.Popen(["sleep", "60"], executable=link, env={VISIBLE_DEVICES_VARIABLE: stand.gpu.uuid}) as process:
        try:
            while not is_mps(process.pid) and time.monotonic() < ends_at:  # it has its name a moment after its start
                time.sleep(PAUSE_SECONDS)
            yield
        finally:
            process.kill()


def start_when_full(stand: Stand) -> dict[str, object]:
    """Starts copies where another client leaves too little memory; what the agent says to it is recorded."""
    rows = []
    for number, (left_gib, wanted_gib) in enumerate(stand.time.take(FULL[: 1 if stand.options.is_short else 2])):
        with _fill(stand, left_gib) as held:
            free_gib = stand.gpu.memory_gib - stand.drivers.device.read(stand.gpu.uuid).memory_used_gib
            try:
                with start_task(stand, stand.task("late", _claim(stand, wanted_gib), QUARTER, sequence=number + 1)):
                    verdict = "it started"
            except (CopyFailed, DeviceError) as error:
                verdict = str(error)
        rows.append({"held": held, "free_gib": round(free_gib, 3), "wanted_gib": wanted_gib, "verdict": verdict})
    return {"rows": rows, "next": start_next(stand)}


@contextmanager
def _fill(stand: Stand, left_gib: float) -> Iterator[str]:
    """Holds the GPU's memory but so much, and yields what the one says that does."""
    uuid = stand.gpu.uuid
    if stand.options.is_stand_in:
        claim = stand.gpu.memory_gib - left_gib
        with start_task(stand, stand.task("early", _claim(stand, claim), QUARTER)):
            yield f"{claim:.3g} GiB"
        return
    stand.drivers.mps.start(uuid)
    limits = stand.drivers.mps.environment(uuid, QUARTER, stand.gpu.memory_gib)
    with start_stranger(limits, "hold", str(left_gib)) as (_, said):
        yield said


def _claim(stand: Stand, gib: float) -> Args:
    return {"device": "simulated" if stand.options.is_stand_in else "cuda", "claimGib": gib, "latency": "1:100=1"}
