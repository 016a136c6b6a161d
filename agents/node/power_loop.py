"""Runs the power loop of every assigned GPU, and sets clocks, caps and batches to its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from agents.contract.assignments import AssignedGpu, Assignment
from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.reports import Excursion
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.filler import Filler
from agents.node.copy_counters import CopyCounters
from agents.node.device_reader import DeviceReader
from agents.node.knob_writer import KnobWriter
from agents.node.report_minute import percentile_ms
from agents.policy import power

NEAR_CAP_SHARE = 0.8  # above it, copies are asked for their load every second


class PowerLoop:
    """Keeps the loop's state of each GPU, and its last excursions for the report."""

    def __init__(
        self,
        devices: DeviceReader,
        counters: CopyCounters,
        knobs: KnobWriter,
        filler: Filler,
        date: Callable[[], datetime],
    ) -> None:
        self._devices = devices
        self._counters = counters
        self._knobs = knobs
        self._filler = filler
        self._date = date
        self._states: dict[str, power.PowerState] = {}
        self.excursions: tuple[Excursion, ...] = ()
        self.repartition: tuple[int, ...] = ()

    def find_strained(self, assignment: Assignment | None, indexes: Mapping[int, str]) -> set[str]:
        """Returns the GPUs near or over their cap, whose copies are asked for their load every second."""
        if assignment is None:
            return set()
        readings = self._devices.readings
        caps = {gpu.index: gpu.cap_w for gpu in assignment.gpus if gpu.cap_w}
        drawn = {index: readings[uuid].power_w or 0.0 for index, uuid in indexes.items() if uuid in readings}
        return {indexes[index] for index, cap in caps.items() if drawn.get(index, 0.0) > NEAR_CAP_SHARE * cap}

    def turn(
        self, assignment: Assignment, indexes: Mapping[int, str], copies: Collection[NodeCopy], now: float
    ) -> None:
        """Runs one period of each present GPU, and sets its knobs."""
        excursions: list[Excursion] = []
        repartition = []
        assigned = {gpu.index: gpu for gpu in assignment.gpus}
        for index, uuid in indexes.items():
            if uuid not in self._devices.present:
                continue
            copies_on_gpu = [copy for copy in copies if uuid in copy.devices]
            move = self._turn_gpu(index, uuid, assigned.get(index, AssignedGpu(index)), copies_on_gpu, now)
            excursions += move.excursions
            if move.repartition:
                repartition.append(index)
        self.excursions, self.repartition = tuple(excursions), tuple(repartition)

    def _turn_gpu(
        self, index: int, uuid: str, assigned: AssignedGpu, copies_on_gpu: Collection[NodeCopy], now: float
    ) -> power.PowerMove:
        ready = [copy for copy in copies_on_gpu if copy.stage is Stage.READY]
        period = self._period(index, uuid, assigned, ready)
        move = power.step(self._states.get(uuid, power.PowerState()), period, power.PowerSettings())
        self._states[uuid] = move.state
        if move.clock_mhz != period.clock_mhz and uuid in self._devices.samples:
            self._devices.samples[uuid].moved(now)
        if copies_on_gpu:
            self._knobs.close_door(uuid, now)
        # A cap below the device's smallest limit is kept by clocks and batches; that limit is the nearest backstop.
        least_w = self._devices.found[uuid].power_min_w
        self._knobs.set_cap(uuid, None if assigned.cap_w is None else max(assigned.cap_w, least_w), now)
        # The planned clock applies where the loop leaves the clock alone, as it does when it cannot be set.
        planned = int(assigned.clock_mhz.planned) if assigned.clock_mhz else None
        clock_mhz = move.clock_mhz if assigned.clock_mhz and move.clock_mhz is not None else planned
        self._knobs.set_clock(uuid, clock_mhz, now)
        for copy in ready:
            filled = self._filler.filled(copy)
            if filled is not None and copy.wanted.batch is not None:
                batch = move.batches.get(copy.instance, int(copy.wanted.batch.planned))
                self._knobs.set_batch(copy, filled, batch, copy.wanted.batch_timeout_ms, now)
        return move

    def _period(self, index: int, uuid: str, assigned: AssignedGpu, ready: Collection[NodeCopy]) -> power.GpuPeriod:
        reading = self._devices.readings.get(uuid)
        gpu = self._devices.found[uuid]
        drawn = self._devices.samples[uuid].period() if uuid in self._devices.samples else None
        clock, cap = self._knobs.clocks.get(uuid), self._knobs.caps.get(uuid)
        return power.GpuPeriod(
            index=index,
            at=self._date(),
            peak_w=drawn[0] if drawn else None,
            mean_w=drawn[1] if drawn else None,
            cap_w=assigned.cap_w,
            clock_mhz=int(clock.requested) if clock and clock.requested else None,
            # A clock that cannot be set is left alone.
            frame=assigned.clock_mhz if clock is None or not clock.trouble else None,
            clocks_mhz=gpu.clocks_mhz,
            limited=assigned.cap_w is not None and cap is not None and cap.applied == assigned.cap_w,
            running_mhz=reading.sm_clock_mhz if reading else None,
            slowed="power_cap" in reading.clock_reasons if reading else False,
            instances=tuple(self._instance_period(copy) for copy in ready if copy.served),
        )

    def _instance_period(self, copy: NodeCopy) -> power.InstancePeriod:
        wanted = copy.wanted
        recent = self._counters.recent(copy.id)
        served = self._counters.served(copy.id)
        batch = self._knobs.batches.get(copy.id)
        planned = wanted.batch.planned if wanted.batch else 1
        return power.InstancePeriod(
            id=copy.instance,
            batch=int(batch.applied if batch and batch.applied is not None else planned),
            frame=wanted.batch,
            latency_ms=percentile_ms(recent.latency_counts, wanted.percentile or 98, LATENCY_EDGES_MS),
            slo_ms=wanted.slo_ms,
            queue=served.queue if served else None,
            batch_mean=served.batch_mean if served else None,
            busy=self._counters.busy(copy.id),
        )
