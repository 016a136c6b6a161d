"""Watches the devices once a second: reads them, guards their memory, runs the power loop and sums the minute."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from agents.contract.assignments import Assignment
from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import NodeDrivers
from agents.keeper.keeper import Keeper
from agents.keeper.reconciling import Situation
from agents.node.copy_counters import CopyCounters
from agents.node.device_reader import DeviceReader
from agents.node.gpu_indexes import GpuIndexes
from agents.node.knob_writer import KnobWriter
from agents.node.memory_guard import MemoryGuard
from agents.node.power_loop import PowerLoop
from agents.node.report_minute import CopyTotals, ReportMinute
from agents.policy import health, power
from agents.seams.device import DeviceError, GpuProcess

PERIOD_SECONDS = 1.0
MEASURE_SECONDS = 5.0  # between two readings of a GPU's processes, while memory is not short

log = logging.getLogger(__name__)


class DeviceWatch:
    """One thread: reads every GPU, tells the keeper its state, turns the knobs and keeps the minute's sums."""

    def __init__(
        self,
        drivers: NodeDrivers,
        keeper: Keeper,
        counters: CopyCounters,
        known: GpuIndexes,
        keep_known: Callable[[GpuIndexes], None],
        states: Mapping[str, health.HealthState],
        energy: Mapping[str, power.Energy],
        clock: Callable[[], float],
        date: Callable[[], datetime],
    ) -> None:
        self._drivers = drivers
        self._keeper = keeper
        self._counters = counters
        self._clock = clock
        self._date = date
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._assignment: Assignment | None = None
        self._draining: frozenset[str] = frozenset()
        self._memory = MemoryGuard(counters.unsaved_seconds)
        self._measured: dict[str, float] = {}
        self.devices = DeviceReader(drivers, known, keep_known, states, energy)
        self.knobs = KnobWriter(drivers)
        self.power = PowerLoop(self.devices, counters, self.knobs, keeper.filler, date)
        self.minute = ReportMinute(_minute(date()), {})
        # The minute before, until it is reported.
        self.finished: tuple[ReportMinute, Mapping[str, CopyTotals]] | None = None

    def offer(self, assignment: Assignment) -> None:
        """Takes the assignment whose GPUs are to be set."""
        self._assignment = assignment
        self._wake.set()

    def drain(self, gpus: Collection[str]) -> None:
        """Empties these GPUs and starts nothing there."""
        self._draining = frozenset(gpus)
        self._wake.set()

    @property
    def indexes(self) -> Mapping[int, str]:
        """The UUID that each index means on this node."""
        return self.devices.indexes

    def run(self) -> None:
        """Ticks every second until `stop`."""
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                self.tick()
            except Exception:
                log.exception("a tick of the device watch failed")
            self._wake.wait(max(0.05, PERIOD_SECONDS - (time.monotonic() - begun)))
            self._wake.clear()

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping.set()
        self._wake.set()

    def tick(self) -> None:
        """Reads and sets everything once."""
        now = self._clock()
        copies = self._keeper.copies()
        self.devices.enumerate(lambda: self._find_held(copies), now)
        self._counters.refresh(copies, now, self.minute, self.power.find_strained(self._assignment, self.indexes))
        self._roll()
        for gpu, reason in self.devices.read(copies, self._keeper.recycled, self.minute, now).items():
            self._keeper.recycle(gpu, reason)
        self._guard_memory(copies, now)
        self._keeper.update_situation(self._situation())
        if self._assignment is not None:
            self.power.turn(self._assignment, self.indexes, copies, now)
        self.knobs.forget({copy.id for copy in copies})

    def _find_held(self, copies: Collection[NodeCopy]) -> Mapping[int, str]:
        """Returns the devices that processes hold, also from host memory, by index.

        A record alone holds none: after a power cut those of all copies are left, and a start that one of them promises
        must not come first.
        """
        runtime = self._drivers.runtime
        alive = [copy for copy in copies if copy.running is not None and runtime.alive(copy.running)]
        places = (zip(copy.wanted.all_gpus, copy.devices, strict=False) for copy in alive)
        return {index: gpu for pairs in places for index, gpu in pairs}

    def _situation(self) -> Situation:
        found = self.devices.found
        gpus = {index: found[uuid] for index, uuid in self.indexes.items() if uuid in found}
        fenced = {uuid: verdict.reason for uuid, verdict in self.devices.verdicts.items() if verdict.fenced}
        # Rounded down, so that noise in what is free does not wake the keeper.
        room = {uuid: math.floor(gib * 64) / 64 for uuid, gib in self._memory.room_gib.items()}
        return Situation(gpus, fenced, self._draining, self._memory.away, room)

    def _guard_memory(self, copies: Collection[NodeCopy], now: float) -> None:
        assignment = self._assignment
        if assignment is None:
            return
        for index, uuid in self.indexes.items():
            if uuid not in self.devices.present:
                continue
            held = self._keeper.held
            # Processes are read every second while memory may be short, else every few seconds.
            pressed = any(hold.missing.memory_gib for hold in held) or bool(self._memory.away)
            if not pressed and now - self._measured.get(uuid, 0.0) < MEASURE_SECONDS:
                continue
            self._measured[uuid] = now
            processes: tuple[GpuProcess, ...] = ()
            if any(uuid in copy.devices for copy in copies):
                with contextlib.suppress(DeviceError):
                    processes = self._drivers.device.processes(uuid)
            gpu, reading = self.devices.found[uuid], self.devices.readings.get(uuid)
            pids = self._drivers.runtime.pids
            self._memory.look(gpu, reading, processes, pids, copies, held, assignment, index, now)

    def _roll(self) -> None:
        began = _minute(self._date())
        if began != self.minute.began:
            self.finished = (self.minute, dict(self._counters.totals))
            self.minute = ReportMinute(began, self._counters.totals)


def _minute(date: datetime) -> datetime:
    return date.replace(second=0, microsecond=0)
