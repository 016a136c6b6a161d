"""Measures one setting of a model on a GPU of this node: time, memory and power of a batch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from agents.contract.campaigns import MeasuredSetting, ProfilingTask
from agents.host import clocks
from agents.keeper.drivers import CopyFailed
from agents.profiling.batches import BatchTimes, TimingEffort, time_batches
from agents.profiling.closed_loop import ClosedLoop, LoopFailed
from agents.profiling.copy import WarmCopy, ask_example, hold_clock, warm_copy
from agents.profiling.seat import ProfilingSeat, check_of
from agents.seams.device import DeviceError, GpuDevice

READ_SECONDS = 0.25  # between two readings of the device
SETTLE_SECONDS = 2.0  # after which a reading of power covers nothing but the closed loop
LEAST_BUSY_SHARE = 0.1  # below it, what the device draws says too little about a busy copy
STILL_SHARE = 0.99  # of the reading before: power that falls more slowly is that of an idle GPU

Check = Callable[[], str]  # returns why to break off; empty: go on


@dataclass(slots=True)
class BusyReadings:
    """The device's readings while the copy computes."""

    seat: ProfilingSeat
    gpu: GpuDevice
    settle_seconds: float
    read_at: float = float("-inf")
    power_w: list[float] = field(default_factory=list)
    clock_mhz: list[float] = field(default_factory=list)

    def read(self, elapsed: float) -> None:
        if elapsed < self.settle_seconds or elapsed - self.read_at < READ_SECONDS:
            return
        self.read_at = elapsed
        with contextlib.suppress(DeviceError):
            reading = self.seat.drivers.device.read(self.gpu.uuid)
            if reading.power_w is not None:
                self.power_w.append(reading.power_w)
            if reading.sm_clock_mhz is not None:
                self.clock_mhz.append(reading.sm_clock_mhz)


def measure(task: ProfilingTask, seat: ProfilingSeat, why_stop: Check) -> MeasuredSetting:
    """Starts a copy at the setting, asks it in a closed loop, and ends it. Raises CopyFailed or Interrupted."""
    gpu = seat.find_gpu(task.gpu)
    if gpu is None:
        raise CopyFailed("no_gpu", f"this node has no GPU {task.gpu}")

    check = check_of(seat, task.gpu, why_stop)
    check()
    idle_w = _idle_power(seat, gpu)
    with hold_clock(task, gpu, seat), warm_copy(task, gpu, seat, check) as warm:
        busy = BusyReadings(seat, gpu, min(SETTLE_SECONDS, task.least_seconds / 1.5))

        def each(elapsed: float) -> None:
            check()
            busy.read(elapsed)

        times = time_copy(task, warm, seat, each)
        memory_gib = _memory(warm, seat)
    return MeasuredSetting(
        task.sequence,
        task.setting,
        clocks.date(),
        latency_ms=times.latency_ms,
        spread_ms=times.spread_ms,
        samples=times.samples,
        source=times.source,
        memory_gib=memory_gib,
        idle_w=idle_w,
        power_w=_busy_power(busy.power_w, idle_w, times.busy_share),
        sm_clock_mhz=fmean(busy.clock_mhz) if busy.clock_mhz else 0.0,
        start_seconds=warm.start_seconds,
    )


def time_copy(task: ProfilingTask, warm: WarmCopy, seat: ProfilingSeat, each: Callable[[float], None]) -> BatchTimes:
    """Times the batches of a warm copy in a closed loop. Raises CopyFailed; `each` may raise Interrupted."""
    filled, address = warm.filled, warm.copy.listens_at.on(seat.host)
    example = ask_example(task, warm, seat)
    effort = TimingEffort(task.accuracy, task.least_seconds, task.most_seconds)
    try:
        request = example.spell(address.host, address.port)
        with ClosedLoop(address.host, address.port, request, task.setting.batch) as loop:
            return time_batches(loop, lambda: seat.drivers.talk.served(address, filled), effort, each)
    except LoopFailed as failure:
        raise CopyFailed("not_measured", str(failure)) from failure


def _idle_power(seat: ProfilingSeat, gpu: GpuDevice) -> float:
    """Returns the GPU's power before the copy starts; 0 if it reports none.

    A reading is a mean over about a second, so what ran before still shows in it: it is read until it falls no more.
    """
    least, until = 0.0, time.monotonic() + SETTLE_SECONDS
    while True:
        try:
            watts = seat.drivers.device.read(gpu.uuid).power_w
        except DeviceError:
            watts = None
        if watts is None:
            return least
        is_falling = least == 0.0 or watts < STILL_SHARE * least
        least = watts if least == 0.0 else min(least, watts)
        if not is_falling or time.monotonic() > until:
            return least
        time.sleep(READ_SECONDS)


def _busy_power(readings: Sequence[float], idle_w: float, busy_share: float) -> float:
    """Returns the power of a copy that is always busy; 0 if it is not known.

    In the loop the copy waits for the client between two batches, and draws nothing then.
    """
    if not readings or busy_share < LEAST_BUSY_SHARE:
        return 0.0
    return idle_w + max(0.0, fmean(readings) - idle_w) / busy_share


def _memory(warm: WarmCopy, seat: ProfilingSeat) -> float:
    """Returns the device memory that the copy's processes hold; 0 if the device does not report it."""
    assert warm.copy.running is not None
    with contextlib.suppress(DeviceError):
        pids = seat.drivers.runtime.pids(warm.copy.running)
        processes = seat.drivers.device.processes(warm.gpu.uuid)
        return sum(process.memory_gib or 0.0 for process in processes if process.pid in pids)
    return 0.0
