"""Runs copies under limits: what each sees, how long its batches take alone and beside another, how one ends."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import combinations_with_replacement, product

import msgspec

from agents.contract.assignments import AssignedInstance
from agents.contract.campaigns import ProfilingTask
from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import CopyFailed
from agents.keeper.ports import free_port
from agents.profiling.batches import BatchTimes
from agents.profiling.copy import WarmCopy
from agents.profiling.measure import measure, time_copy
from agents.runtime import Launch
from scripts.gpukit.stand import HOST, KERNELS, Args, Stand, StepSkipped

ALONE_PERCENTS = (25.0, 50.0, 100.0)
PAIR_PERCENTS = ((25.0, 75.0), (50.0, 50.0), (75.0, 25.0))
SEEN_PERCENTS = (5.0, 10.0, 25.0, 33.0, 50.0, 75.0, 100.0)
LIMIT_GIB, WANTED_GIB = 1.0, 2.0
END_SECONDS = 30.0
OUT_OF_MEMORY = "CUDA error 2"
IMAGE = "3,224,224"


def see_shares(stand: Stand) -> dict[str, object]:
    """Returns the multiprocessors that a copy sees under each limit, and whether it is a client of MPS."""
    rows = []
    for number, percent in enumerate(stand.time.take(SEEN_PERCENTS[:: 3 if stand.options.is_short else 1])):
        task = stand.task("arithmetic", stand.args("arithmetic"), percent, sequence=number + 1)
        with stand.warm(task) as warm:
            served = stand.drivers.talk.served(warm.copy.listens_at, warm.filled)
            running = warm.copy.running
            rows.append(
                {
                    "sm_percent": percent,
                    "sm_count": served and served.sm_count,
                    "is_client": running is not None and running.pid in stand.drivers.mps.clients(stand.gpu.uuid),
                }
            )
    return {"of": stand.gpu.sm_count, "rows": rows}


def exceed_memory(stand: Stand) -> dict[str, object]:
    """Starts a copy that claims more memory than its limit; it must be refused, and say so."""
    args: Args = {
        "device": "simulated" if stand.options.is_stand_in else "cuda",
        "claimGib": WANTED_GIB,
        "latency": "1:100=1",
    }
    wanted = AssignedInstance(
        "kit-memory", stand.gpu.index, template="gpuwright-serve", args=dict(args), memory_gib=LIMIT_GIB
    )
    copy = NodeCopy("kit-memory.1", wanted, stand.gpu.uuid, port=free_port(HOST, ()))
    drivers = stand.drivers
    drivers.mps.start(stand.gpu.uuid)
    limits = drivers.mps.environment(stand.gpu.uuid, 50.0, LIMIT_GIB)
    running = drivers.runtime.start(Launch(copy.id, copy.gpu, stand.filler.fill(copy), copy.port, limits))
    assert running is not None, "a process runs at once"
    ends_at = time.monotonic() + END_SECONDS
    while drivers.runtime.alive(running) and time.monotonic() < ends_at:
        time.sleep(0.05)
    ended = not drivers.runtime.alive(running)
    drivers.runtime.end(running, force=True)
    said = drivers.runtime.log_tail(copy.id).strip().splitlines()
    is_refused = ended and any(OUT_OF_MEMORY in line for line in said)
    return {"limit_gib": LIMIT_GIB, "wanted_gib": WANTED_GIB, "is_refused": is_refused, "said": said}


def run_alone(stand: Stand) -> dict[str, object]:
    """Measures the four loads at three shares."""
    rows = []
    for number, (load, percent) in enumerate(stand.time.take(product(_loads(stand), ALONE_PERCENTS))):
        task = stand.task(load, stand.args(load), percent, sequence=number + 1)
        rows.append({"load": load} | _measure(stand, task))
    return {"rows": rows}


def run_pairs(stand: Stand) -> dict[str, object]:
    """Measures every two loads beside each other at three splits."""
    rows = []
    pairs = [
        (pair, split)
        for pair in combinations_with_replacement(_loads(stand), 2)
        for split in PAIR_PERCENTS[: 2 if pair[0] == pair[1] else 3]
    ]
    for pair, split in stand.time.take(pairs):
        tasks = [
            stand.task(f"{load}-{side}", stand.args(load), percent)
            for side, load, percent in zip("ab", pair, split, strict=True)
        ]
        times = _together(stand, tasks)
        rows.append(
            {
                "loads": pair,
                "sm_percents": split,
                "latency_ms": [round(found.latency_ms, 4) for found in times],
                "spread_ms": [round(found.spread_ms, 4) for found in times],
                "batches": [found.samples for found in times],
            }
        )
    return {"rows": rows}


def _together(stand: Stand, tasks: Sequence[ProfilingTask]) -> list[BatchTimes]:
    """Times copies at once, each for the same time. Raises CopyFailed."""
    found: dict[int, BatchTimes] = {}
    failed: list[CopyFailed] = []

    def time_one(place: int, task: ProfilingTask, warm: WarmCopy) -> None:
        same = msgspec.structs.replace(task, most_seconds=task.least_seconds)
        try:
            found[place] = time_copy(same, warm, stand.seat, lambda elapsed: None)
        except CopyFailed as failure:
            failed.append(failure)

    with ExitStack() as copies:
        warm = [copies.enter_context(stand.warm(task)) for task in tasks]
        threads = [
            threading.Thread(target=time_one, args=(place, task, copy))
            for place, (task, copy) in enumerate(zip(tasks, warm, strict=True))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    return [found[place] for place in range(len(tasks))]


def end_one_of_two(stand: Stand) -> dict[str, object]:
    """Ends one of two clients through the daemon; the other one must go on answering."""
    loads = (KERNELS[0], KERNELS[-1])
    with ExitStack() as copies:
        first, other = (copies.enter_context(stand.warm(stand.task(load, stand.args(load), 50.0))) for load in loads)
        running = first.copy.running
        assert running is not None and first.filled.example is not None
        confirmed = stand.drivers.mps.terminate(stand.gpu.uuid, running.pid)
        stand.drivers.runtime.end(running, force=True)
        after = time_copy(stand.task(loads[1], {}, 50.0), other, stand.seat, lambda elapsed: None)
        state = stand.drivers.mps.state(stand.gpu.uuid)
    return {"confirmed": confirmed, "batches_of_the_other": after.samples, "mps": str(state)}


def run_real_model(stand: Stand) -> dict[str, object]:
    """Measures ResNet-50 with random weights, where PyTorch reaches the GPU."""
    if stand.options.is_stand_in:
        raise StepSkipped("a stand-in computes nothing")
    if not _save_resnet(stand):
        raise StepSkipped("PyTorch with torchvision and CUDA is not installed")
    args: Args = {"file": "resnet50.pt", "shape": IMAGE}
    settings = [(batch, percent) for batch in (1, 8, 32) for percent in (25.0, 50.0, 100.0)]
    rows = []
    for number, (batch, percent) in enumerate(stand.time.take(settings[:: 4 if stand.options.is_short else 1])):
        rows.append(_measure(stand, stand.task("resnet50", args, percent, batch, sequence=number + 1)))
    return {"model": "ResNet-50 of torchvision, random weights, TorchScript", "rows": rows}


def _save_resnet(stand: Stand) -> bool:
    """Writes the model's file in this process, which does not open the GPU; returns whether it could."""
    try:
        torch, torchvision = (importlib.import_module(name) for name in ("torch", "torchvision"))
    except ImportError:
        return False
    if torch.version.cuda is None:
        return False
    model = torchvision.models.resnet50(weights=None).eval()
    torch.jit.trace(model, torch.zeros(1, 3, 224, 224)).save(str(stand.folder / "models" / "resnet50.pt"))
    return True


def _loads(stand: Stand) -> tuple[str, ...]:
    return KERNELS[:2] if stand.options.is_short else KERNELS


def _measure(stand: Stand, task: ProfilingTask) -> dict[str, object]:
    found = measure(task, stand.seat, lambda: "")
    return {
        "batch": task.setting.batch,
        "sm_percent": task.setting.sm_percent,
        "latency_ms": round(found.latency_ms, 4),
        "spread_ms": round(found.spread_ms, 4),
        "batches": found.samples,
        "memory_gib": round(found.memory_gib, 3),
        "power_w": round(found.power_w, 1),
        "idle_w": round(found.idle_w, 1),
        "read_mhz": round(found.sm_clock_mhz),
        "start_seconds": round(found.start_seconds, 2),
    }
