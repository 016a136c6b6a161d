"""Moves a job to host memory and back: its program does it when asked, and the node checks that it has.

A program that takes part promises this: on SIGTSTP it saves, moves what it holds of the GPU's memory to the host, and
stops itself (SIGSTOP); on SIGCONT it moves it back and goes on. That works under MPS, where nothing from outside can
move a client's memory. Its CUDA context stays on the GPU.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import CopyFailed, NodeDrivers
from agents.keeper.stopping import SentSignals
from agents.seams.device import DeviceError, Trouble
from agents.templates import Filled

NOT_SWAPPED = "not_swapped"  # the reason of a copy that is ended because it did not move to host memory
MEMINFO = Path("/proc/meminfo")
LEFT_GIB = 1.0  # that a process may still hold of a GPU: its context stays there
RESERVE_GIB = 1.0  # of the host's memory, which stays free
SHORTEST_SECONDS = 20.0  # that a job has for moving, also if it saves in less
OUT, BACK = "SIGTSTP", "SIGCONT"


class NotSwapped(Exception):
    """A job cannot move to host memory, or did not; the message says why. It is ended like any other."""


def swap_out(
    copy: NodeCopy,
    filled: Filled | None,
    drivers: NodeDrivers,
    now: float,
    sent: SentSignals,
    others: Collection[NodeCopy],
) -> NodeCopy | None:
    """Asks the copy to move; returns it once it has, or None until then. `others` are on their way there, too.

    Raises NotSwapped if it cannot move or takes too long.
    """
    running = copy.running
    if running is None:
        raise NotSwapped("it has no process")
    if not drivers.runtime.stopped(running):
        if not sent.has_sent(copy.id, OUT):
            _check_host(copy, others)
            sent.once(copy.id, OUT, lambda: drivers.runtime.tell(running, OUT))
        lacking = "it has not stopped itself"
    else:
        left_gib = _left_gib(copy, drivers)
        if left_gib <= LEFT_GIB:
            return copy.at(Stage.SWAPPED, now)
        lacking = f"it has stopped itself, and still holds {left_gib:.1f} GiB of a GPU"
    limit = limit_seconds(filled)
    if now - copy.since > limit:
        raise NotSwapped(f"{lacking} {limit:g} s after SIGTSTP")
    return None


def bring_back(
    copy: NodeCopy, filled: Filled | None, drivers: NodeDrivers, now: float, sent: SentSignals
) -> NodeCopy | None:
    """Tells the copy to go on; returns it once it does, or None until then. Raises CopyFailed if it cannot."""
    running = copy.running
    if running is None:
        raise CopyFailed("not_returned", "it has no process")
    if not drivers.runtime.stopped(running):
        sent.forget(copy.id)
        return copy.at(Stage.READY, now)
    if (filled is None or filled.uses_gpu) and not drivers.runtime.pids(running) & drivers.mps.clients(copy.gpu):
        raise CopyFailed("not_under_mps", "it lost its connection to MPS while it waited in host memory")
    drivers.runtime.tell(running, BACK)
    limit = limit_seconds(filled)
    if now - copy.since > limit:
        raise CopyFailed("not_returned", f"it has not gone on {limit:g} s after SIGCONT")
    return None


def wake(copy: NodeCopy, drivers: NodeDrivers) -> None:
    """Tells a job to go on that should run and has stopped itself: because it was asked twice, for example."""
    terms = copy.wanted.terms
    if terms is not None and terms.swaps and copy.running is not None and drivers.runtime.stopped(copy.running):
        drivers.runtime.tell(copy.running, BACK)


def host_free_gib() -> float:
    """Returns the memory of this machine that programs can still get."""
    for line in MEMINFO.read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    raise NotSwapped(f"{MEMINFO} does not say how much memory is available")


def _check_host(copy: NodeCopy, others: Collection[NodeCopy]) -> None:
    needed_gib = sum(other.wanted.memory_gib * len(other.devices) for other in (copy, *others)) + RESERVE_GIB
    free_gib = host_free_gib()
    if free_gib <= needed_gib:
        raise NotSwapped(f"the host has {free_gib:.1f} GiB of memory left, and {needed_gib:.1f} GiB are needed")


def _left_gib(copy: NodeCopy, drivers: NodeDrivers) -> float:
    """Returns the most that the copy's processes hold of one of its GPUs, as far as the device says."""
    assert copy.running is not None
    pids = drivers.runtime.pids(copy.running)
    try:
        held = {gpu: drivers.device.processes(gpu) for gpu in copy.devices}
    except DeviceError as error:
        if error.trouble is Trouble.NOT_SUPPORTED:
            return 0.0
        raise
    return max(sum(one.memory_gib or 0.0 for one in there if one.pid in pids) for there in held.values())


def limit_seconds(filled: Filled | None) -> float:
    """Returns the seconds that a job has for moving."""
    return max(SHORTEST_SECONDS, filled.checkpoint_seconds if filled else 0.0)
