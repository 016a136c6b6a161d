"""Watches the devices once a second: health, watts and clocks; turns the knobs, and says what the keeper must know."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from agents.contract import LATENCY_EDGES_MS, AssignedGpu, Assignment, Excursion
from agents.host import clocks
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import NodeDrivers
from agents.keeper.keeper import Keeper
from agents.keeper.reconciling import Situation
from agents.node.copy_counters import CopyCounters
from agents.node.gpu_indexes import assigned_indexes, extend_indexes
from agents.node.knob_writer import KnobWriter
from agents.node.memory_guard import MemoryGuard
from agents.node.report_minute import CopyTotals, ReportMinute, percentile_ms
from agents.policy import health, power
from agents.seams.device import DeviceError, GpuDevice, GpuProcess, GpuReading, MpsState, Trouble

PERIOD_SECONDS = 1.0
ENUMERATE_SECONDS = 10.0
MPS_SECONDS = 10.0
PATIENCE = 3  # doubtful answers in a row that are borne
NEAR_CAP = 0.8
MEASURE_SECONDS = 5.0

log = logging.getLogger(__name__)


class DeviceWatch:
    """One thread: reads every GPU, judges its health, runs its power loop, and keeps the minute's sums."""

    def __init__(
        self,
        drivers: NodeDrivers,
        keeper: Keeper,
        census: CopyCounters,
        known: Mapping[int, str],
        keep_known: Callable[[Mapping[int, str]], None],
        states: Mapping[str, health.HealthState],
        energy: Mapping[str, power.Energy],
        clock: Callable[[], float] = clocks.seconds,
        date: Callable[[], datetime] = clocks.date,
    ) -> None:
        self._drivers = drivers
        self._keeper = keeper
        self._census = census
        self._keep_known = keep_known
        self._clock = clock
        self._date = date
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._indexes = dict(known)
        self._found: dict[str, GpuDevice] = {}
        self._present: set[str] = set()
        self._enumerated_at = float("-inf")
        self._mps: dict[str, MpsState] = {}
        self._mps_at = float("-inf")
        self._doubts: dict[str, int] = {}
        self._health = dict(states)
        self._power: dict[str, power.PowerState] = {}
        self._energy = dict(energy)
        self._samples: dict[str, power.Samples] = {}
        self._assignment: Assignment | None = None
        self._draining: frozenset[str] = frozenset()
        self.verdicts: dict[str, health.HealthVerdict] = {}
        self.readings: dict[str, GpuReading] = {}
        self.xids: dict[str, int] = {}
        self.excursions: tuple[Excursion, ...] = ()
        self.repartition: tuple[int, ...] = ()
        self.knobs = KnobWriter(drivers)
        self._memory = MemoryGuard()
        self._measured: dict[str, float] = {}
        self.minute = ReportMinute(_minute(date()), {})
        self.finished: tuple[ReportMinute, Mapping[str, CopyTotals]] | None = (
            None  # the minute before, until it was reported
        )

    # What the rest of the agent says and asks.

    def offer(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._wake.set()

    def drain(self, gpus: Collection[str]) -> None:
        """Empty these GPUs, and start nothing there."""
        self._draining = frozenset(gpus)
        self._wake.set()

    @property
    def indexes(self) -> Mapping[int, str]:
        """The UUID that each index means on this node."""
        return assigned_indexes(self._indexes, self._assignment)

    @property
    def health(self) -> Mapping[str, health.HealthState]:
        """What is remembered of each GPU's health: a fault that a person must mend outlives the agent."""
        return self._health

    @property
    def found(self) -> Mapping[str, GpuDevice]:
        """Every device that was ever seen, as it was seen last."""
        return self._found

    @property
    def energy(self) -> Mapping[str, power.Energy]:
        """What each GPU has drawn since an agent first counted."""
        return self._energy

    def energy_mj(self, gpu: str) -> int:
        return self._energy.get(gpu, power.Energy()).total_mj

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                self.tick()
            except Exception:
                log.exception("a look at the devices failed")
            self._wake.wait(max(0.05, PERIOD_SECONDS - (time.monotonic() - begun)))
            self._wake.clear()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def tick(self) -> None:
        now = self._clock()
        self._enumerate(now)
        copies = self._keeper.copies()
        self._census.refresh(copies, now, self._strained())
        self._roll()
        self._look(copies, now)
        self._guard_memory(copies, now)
        self._keeper.update_situation(self._situation())
        self._turn(copies, now)
        self.knobs.forget({copy.id for copy in copies})

    def _enumerate(self, now: float) -> None:
        if now - self._enumerated_at < ENUMERATE_SECONDS:
            return
        self._enumerated_at = now
        try:
            gpus = self._drivers.device.gpus()
        except DeviceError as error:
            log.warning("the devices cannot be listed: %s", error)
            if error.trouble is Trouble.NO_DRIVER:
                self._present = set()
            return  # anything else says nothing of any one of them
        self._found.update({gpu.uuid: gpu for gpu in gpus})
        self._present = {gpu.uuid for gpu in gpus}
        fixed = extend_indexes(self._indexes, gpus)
        if fixed != self._indexes:
            self._indexes = fixed
            self._keep_known(fixed)

    def _look(self, copies: Collection[NodeCopy], now: float) -> None:
        """Read every GPU and judge its health; one that does not answer hides no other."""
        xids: dict[str, tuple[int, ...]] = {}
        try:
            for event in self._drivers.device.events(0):
                xids[event.uuid] = (*xids.get(event.uuid, ()), event.xid)
                self.xids[event.uuid] = event.xid
        except DeviceError as error:
            if error.trouble is not Trouble.NOT_SUPPORTED:
                log.warning("events cannot be read: %s", error)
        if now - self._mps_at >= MPS_SECONDS:
            self._mps_at = now
            # A daemon that is to start anew has no copies yet: it is asked all the same, or it would pass for sound.
            asked = {copy.gpu for copy in copies if copy.running} | self._keeper.recycled.keys()
            self._mps = {gpu: self._mps_state(gpu) for gpu in sorted(asked)}
        for uuid in self._indexes.values():
            reading, trouble = None, None
            try:
                reading = self._drivers.device.read(uuid)
                self.readings[uuid] = reading
                self.minute.read(uuid, reading)
                before = self._energy.get(uuid, power.Energy())
                self._samples.setdefault(uuid, power.Samples()).read(now, reading.power_w, reading.energy_mj)
                self._energy[uuid] = power.metered(before, reading.energy_mj, reading.power_w, now)
            except DeviceError as error:
                trouble = error.trouble
                self.readings.pop(uuid, None)
                if trouble is Trouble.LOST:
                    self._enumerated_at = float("-inf")
            present = uuid in self._present and trouble is not Trouble.LOST
            seen = health.GpuObservation(uuid, present, reading, trouble, xids.get(uuid, ()), self._mps.get(uuid))
            state = self._health.get(uuid) or health.HealthState(uuid)
            self._health[uuid] = health.observe(state, seen, now)
            verdict = health.verdict(self._health[uuid], now)
            before_verdict = self.verdicts.get(uuid)
            if before_verdict is None or before_verdict.reason != verdict.reason:
                level = logging.INFO if verdict.health == "ok" else logging.WARNING
                log.log(level, "GPU %s is %s", uuid, ": ".join(filter(None, [verdict.health, verdict.message])))
            self.verdicts[uuid] = verdict
            if self._mps.get(uuid) in (MpsState.FAULT, MpsState.DOWN) and uuid not in self._keeper.recycled:
                self._keeper.recycle(uuid, f"mps_{self._mps[uuid]}")

    def _mps_state(self, gpu: str) -> MpsState:
        """As the daemon says. One doubtful answer is no reason to end what it serves; several in a row are."""
        try:
            state = self._drivers.mps.state(gpu)
            self._doubts.pop(gpu, None)
            return state
        except DeviceError as error:
            if error.trouble is Trouble.FAULT:
                return MpsState.FAULT
            self._doubts[gpu] = self._doubts.get(gpu, 0) + 1
            log.warning("the MPS daemon of GPU %s cannot be asked: %s", gpu, error)
            sure = error.trouble is Trouble.DOWN or self._doubts[gpu] >= PATIENCE
            return MpsState.DOWN if sure else self._mps.get(gpu, MpsState.ACTIVE)

    def _strained(self) -> set[str]:
        """GPUs near or over their cap: what their copies do is asked for every second."""
        if self._assignment is None:
            return set()
        caps = {gpu.index: gpu.cap_w for gpu in self._assignment.gpus if gpu.cap_w}
        drawn = {
            index: self.readings[uuid].power_w or 0.0 for index, uuid in self.indexes.items() if uuid in self.readings
        }
        return {self.indexes[index] for index, cap in caps.items() if drawn.get(index, 0.0) > NEAR_CAP * cap}

    def _situation(self) -> Situation:
        gpus = {index: self._found[uuid] for index, uuid in self.indexes.items() if uuid in self._found}
        fenced = {uuid: verdict.reason for uuid, verdict in self.verdicts.items() if verdict.fenced}
        room = {uuid: math.floor(gib * 64) / 64 for uuid, gib in self._memory.room_gib.items()}  # no news in its noise
        return Situation(gpus, fenced, self._draining, self._memory.away, room)

    def _guard_memory(self, copies: Collection[NodeCopy], now: float) -> None:
        assignment = self._assignment
        if assignment is None:
            return
        for index, uuid in self.indexes.items():
            if uuid not in self._present:
                continue
            held = self._keeper.held
            # Who holds what is asked where it can matter now, and else every few seconds.
            pressed = any(one.missing.memory_gib for one in held) or bool(self._memory.away)
            if not pressed and now - self._measured.get(uuid, 0.0) < MEASURE_SECONDS:
                continue
            self._measured[uuid] = now
            processes: tuple[GpuProcess, ...] = ()
            if any(copy.gpu == uuid for copy in copies):
                with contextlib.suppress(DeviceError):
                    processes = self._drivers.device.processes(uuid)
            gpu, reading, pids = self._found[uuid], self.readings.get(uuid), self._drivers.runtime.pids
            self._memory.look(gpu, reading, processes, pids, copies, held, assignment, index, now)

    def _roll(self) -> None:
        began = _minute(self._date())
        if began != self.minute.began:
            self.finished = (self.minute, dict(self._census.totals))
            self.minute = ReportMinute(began, self._census.totals)

    def _turn(self, copies: Collection[NodeCopy], now: float) -> None:
        """Run the power loop of each GPU that is assigned, and put its knobs where it says."""
        assignment = self._assignment
        if assignment is None:
            return
        excursions: list[Excursion] = []
        repartition = []
        assigned = {gpu.index: gpu for gpu in assignment.gpus}
        for index, uuid in self.indexes.items():
            if uuid not in self._present:
                continue
            told = assigned.get(index, AssignedGpu(index))
            here = [copy for copy in copies if copy.gpu == uuid and copy.stage is Stage.READY]
            seen = self._seen(index, uuid, told, here, now)
            move = power.step(self._power.get(uuid, power.PowerState()), seen, power.PowerSettings())
            self._power[uuid] = move.state
            if move.clock_mhz != seen.clock_mhz and uuid in self._samples:
                self._samples[uuid].moved(now)
            if any(copy.gpu == uuid for copy in copies):
                self.knobs.close_door(uuid, now)
            self.knobs.turn_cap(uuid, told.cap_w, now)
            # What the loop leaves alone, as it does a clock that did not turn, is wanted where the plan has it.
            planned = int(told.clock_mhz.planned) if told.clock_mhz else None
            wanted = move.clock_mhz if told.clock_mhz and move.clock_mhz is not None else planned
            self.knobs.turn_clock(uuid, wanted, now)
            for copy in here:
                filled = self._keeper.filler.filled(copy)
                if filled is not None and copy.wanted.batch is not None:
                    batch = move.batches.get(copy.instance, int(copy.wanted.batch.planned))
                    self.knobs.turn_batch(copy, filled, batch, copy.wanted.batch_timeout_ms, now)
            excursions += move.excursions
            if move.repartition:
                repartition.append(index)
        self.excursions, self.repartition = tuple(excursions), tuple(repartition)

    def _seen(
        self, index: int, uuid: str, told: AssignedGpu, here: Collection[NodeCopy], now: float
    ) -> power.GpuPeriod:
        reading = self.readings.get(uuid)
        gpu = self._found[uuid]
        drawn = self._samples[uuid].period() if uuid in self._samples else None
        clock, cap = self.knobs.clocks.get(uuid), self.knobs.caps.get(uuid)
        return power.GpuPeriod(
            index=index,
            at=self._date(),
            peak_w=drawn[0] if drawn else None,
            mean_w=drawn[1] if drawn else None,
            cap_w=told.cap_w,
            clock_mhz=int(clock.requested) if clock and clock.requested else None,
            frame=told.clock_mhz if clock is None or not clock.trouble else None,  # one that does not turn is not ours
            clocks_mhz=gpu.clocks_mhz,
            limited=told.cap_w is not None and cap is not None and cap.applied == told.cap_w,
            running_mhz=reading.sm_clock_mhz if reading else None,
            slowed="power_cap" in reading.clock_reasons if reading else False,
            instances=tuple(self._seen_instance(copy) for copy in here if copy.served),
        )

    def _seen_instance(self, copy: NodeCopy) -> power.InstancePeriod:
        wanted = copy.wanted
        lately = self._census.lately(copy.id)
        served = self._census.served(copy.id)
        turned = self.knobs.batches.get(copy.id)
        planned = wanted.batch.planned if wanted.batch else 1
        return power.InstancePeriod(
            id=copy.instance,
            batch=int(turned.applied if turned and turned.applied is not None else planned),
            frame=wanted.batch,
            latency_ms=percentile_ms(lately.latency_counts, wanted.percentile or 98, LATENCY_EDGES_MS),
            slo_ms=wanted.slo_ms,
            queue=served.queue if served else None,
            batch_mean=served.batch_mean if served else None,
            busy=self._census.busy(copy.id),
        )


def _minute(date: datetime) -> datetime:
    return date.replace(second=0, microsecond=0)
