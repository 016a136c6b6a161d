"""A node's GPUs and MPS daemons as a model in explicit time, with a switch for every fault. No clock inside, no I/O.

Calls take effect at the moment to which the machine was last advanced. It outlives the agent that uses it, as
hardware does: settings, clients and the originals to restore are kept here.
"""

from __future__ import annotations

import math
import uuid as uuids
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agents.devices.simulated.context import SimulatedContext
from agents.devices.simulated.daemon import SimulatedDaemon
from agents.devices.simulated.gpu import SimulatedGpu
from agents.devices.simulated.kinds import KINDS
from agents.devices.simulated.refusals import CANNOT_CONNECT, NO_DEVICE, TERMINATED, CudaRefusal
from agents.devices.simulated.speeds import BusyLoad, LoadSpeeds
from agents.devices.simulated.truth import GpuTruth, SetValues
from agents.seams.device import Ability, XidEvent

Setters = Literal["work", "ignored", "no_permission"]
FELL_OFF_THE_BUS = 79
MOST_EVENTS = 4096


def current_settings(gpu: SimulatedGpu) -> SetValues:
    """Returns the GPU's current settings."""
    return SetValues(gpu.locked_mhz, gpu.cap_w, gpu.exclusive)


def _busy_load(gpu: SimulatedGpu, context: SimulatedContext) -> BusyLoad | None:
    """Returns what a process plays on its share of the SMs; None if it has not named a load."""
    if context.load is None:
        return None
    return BusyLoad(context.load, 100.0 * context.sm_count / gpu.kind.sm_count, context.busy)


@dataclass(slots=True, eq=False)
class SimulatedSlot:
    """One slot: the GPU, its daemon, and the faults between it and its users."""

    gpu: SimulatedGpu
    daemon: SimulatedDaemon
    lost: bool = False
    reads_fail: bool = False
    setters: Setters = "work"
    slow_seconds: float = 0.0  # added to every call; infinite: it hangs
    unsupported: set[Ability] = field(default_factory=set)
    stale_pids: list[int] = field(default_factory=list)  # listed by the driver although gone
    original: SetValues | None = None  # before the first change through a device


class Machine:
    """`kinds` names the GPU in each slot. `name` is the machine's own: the same name yields the same UUIDs."""

    def __init__(self, kinds: Sequence[str], name: str = "node", now: float = 0.0) -> None:
        self.now = now
        self.slots: dict[str, SimulatedSlot] = {}
        for place, kind in enumerate(kinds):
            if kind not in KINDS:
                raise ValueError(f"unknown GPU kind {kind!r}; known are {', '.join(sorted(KINDS))}")
            board = uuids.uuid5(uuids.NAMESPACE_OID, f"{name}/{place}")
            uuid, serial = f"GPU-{board}", f"{board.int % 10**13:013d}"
            gpu = SimulatedGpu(KINDS[kind], uuid, f"00000000:{place + 1:02X}:00.0", now, serial)
            self.slots[uuid] = SimulatedSlot(gpu, SimulatedDaemon(gpu))
        self.speeds: LoadSpeeds | None = None  # None: each program runs as it says itself
        self.writes = 0  # changes that reached the driver, including refused ones
        self.driver_loaded = True
        self.pid_exists: Callable[[int], bool] = lambda pid: True
        self._events: deque[tuple[int, XidEvent]] = deque(maxlen=MOST_EVENTS)
        self._event_count = 0

    def advance(self, now: float) -> None:
        """Lets time pass everywhere."""
        for uuid in self.slots:
            self.at(uuid, now)

    def at(self, uuid: str, now: float) -> SimulatedSlot:
        """Returns one GPU's slot, advanced to this time; the others catch up later. Raises KeyError."""
        self.now = max(self.now, now)
        slot = self.slots[uuid]
        slot.gpu.advance(self.now)
        return slot

    def events_since(self, known: int) -> tuple[int, tuple[XidEvent, ...]]:
        """Returns the events after the first `seen`, and their total, which is the next call's `seen`."""
        return self._event_count, tuple(event for number, event in self._events if number > known)

    # Processes.

    def attach(
        self, uuid: str, pid: int, sm_percent: float, memory_limit_gib: float | None, memory_gib: float
    ) -> SimulatedContext:
        """Opens the device for a process through the MPS daemon of that GPU. Raises CudaRefusal."""
        slot = self._slot(uuid)
        if slot.lost:
            raise CudaRefusal(CANNOT_CONNECT, "the GPU is lost")
        return slot.daemon.attach(pid, sm_percent, memory_limit_gib, memory_gib)

    def open_outside(self, uuid: str, pid: int, memory_gib: float) -> SimulatedContext:
        """Opens the device for a process without MPS and without limits. Raises CudaRefusal."""
        slot = self._slot(uuid)
        if slot.lost:
            raise CudaRefusal(NO_DEVICE, "the GPU is lost")
        return slot.daemon.let_past(pid, memory_gib)

    def vacate(self, pid: int) -> None:
        """Closes the device for a process outside MPS, on every GPU."""
        for uuid, slot in self.slots.items():
            for context in [context for context in slot.gpu.contexts if context.pid == pid and not context.under_mps]:
                self.close(uuid, context)

    def hold(self, uuid: str, context: SimulatedContext, memory_gib: float) -> None:
        """Sets the device memory that the process holds from now on. Raises CudaRefusal."""
        if context.error is None:
            self._slot(uuid).gpu.hold(context, memory_gib)

    def busy(self, uuid: str, context: SimulatedContext, fraction: float) -> None:
        """Sets the part of the time in which the process keeps its multiprocessors at work from now on."""
        gpu = self._slot(uuid).gpu
        if context.error is None and context.busy != fraction:
            context.busy = min(1.0, max(0.0, fraction))
            gpu.changed()

    def times_ms(self, uuid: str, context: SimulatedContext) -> Mapping[int, float]:
        """Returns how long the process's batches take beside what is busy now, by size; empty where it decides."""
        gpu = self._slot(uuid).gpu
        if self.speeds is None or context.load is None:
            return {}
        others = [_busy_load(gpu, other) for other in gpu.contexts if other is not context and other.busy > 0]
        mine = _busy_load(gpu, context)
        assert mine is not None
        clock_share = gpu.clock_mhz / gpu.clocks_mhz[-1]
        return self.speeds.times_ms(mine, [other for other in others if other], clock_share)

    def close(self, uuid: str, context: SimulatedContext) -> None:
        """Closes the context of a process that ended or gave it up."""
        self._slot(uuid).daemon.leave(context)

    # Influence from outside.

    def preset(self, uuid: str, cap_w: float, exclusive: bool) -> None:
        """Applies a setting that an administrator made before any agent started."""
        gpu = self._slot(uuid).gpu
        gpu.cap_w, gpu.exclusive = cap_w, exclusive
        gpu.changed()

    def truth(self, uuid: str) -> GpuTruth:
        gpu = self._slot(uuid).gpu
        return GpuTruth(current_settings(gpu), gpu.power_w, gpu.peak_w, (gpu.energy_j - gpu.energy_zero_j), gpu.load)

    def how_many_writes(self) -> int:
        """Counts the changes of clocks, limits and modes that reached the driver, including refused ones."""
        return self.writes

    # Faults of GPUs.

    def lose(self, uuid: str) -> None:
        """Drops the GPU off the bus: its processes fail, its MPS server faults, and no call is answered."""
        slot = self._slot(uuid)
        if slot.lost:
            return
        slot.daemon.fault()
        for context in slot.gpu.contexts:
            context.error, context.busy = TERMINATED, 0.0
        slot.lost = True
        self.xid(uuid, FELL_OFF_THE_BUS)

    def give_back(self, uuid: str) -> None:
        """Brings the GPU back after a reset: without locks, other limits or contexts, and with its counters at 0."""
        slot = self._slot(uuid)
        if not slot.lost:
            return
        slot.lost = False
        slot.daemon.stop()
        slot.original = None
        gpu = slot.gpu
        gpu.contexts.clear()
        gpu.locked_mhz, gpu.cap_w, gpu.exclusive = None, gpu.kind.power_default_w, False
        gpu.energy_zero_j, gpu.ecc_uncorrected = gpu.energy_j, 0
        gpu.changed()

    def xid(self, uuid: str, number: int) -> None:
        """Reports a critical error of the driver."""
        self._event_count += 1
        self._events.append((self._event_count, XidEvent(uuid, number)))

    def ecc(self, uuid: str, uncorrected: int) -> None:
        self._slot(uuid).gpu.ecc_uncorrected += uncorrected

    def heat(self, uuid: str, extra_c: float) -> None:
        """Adds this much heat at any load, as a blocked fan or a hot aisle does; 0 ends it."""
        gpu = self._slot(uuid).gpu
        gpu.extra_heat_c = extra_c
        gpu.changed()

    def age(self, uuid: str, heat_c_per_day: float = 0.0, clock_loss_per_day: float = 0.0) -> None:
        """Starts wear: more heat every day, or a share of the highest clock lost every day."""
        gpu = self._slot(uuid).gpu
        gpu.heat_c_per_day, gpu.clock_loss_per_day, gpu.aged_since = heat_c_per_day, clock_loss_per_day, gpu.now
        gpu.changed()

    def slow_down(self, uuid: str, reasons: Sequence[str]) -> None:
        """Holds the clock at its lowest for these reasons (hw_slowdown, power_brake); none ends it."""
        gpu = self._slot(uuid).gpu
        gpu.forced_reasons = frozenset(reasons)
        gpu.changed()

    def reload_driver(self) -> None:
        """Resets the energy counters and drops the clock locks."""
        for uuid in self.slots:
            gpu = self._slot(uuid).gpu
            gpu.energy_zero_j, gpu.locked_mhz = gpu.energy_j, None
            gpu.changed()

    def load_driver(self, loaded: bool) -> None:
        self.driver_loaded = loaded

    def reads_fail(self, uuid: str, failing: bool) -> None:
        self._slot(uuid).reads_fail = failing

    def setters(self, uuid: str, how: Setters) -> None:
        """Sets how setters behave; `ignored`: success without effect."""
        self._slot(uuid).setters = how

    def slow(self, uuid: str, seconds: float) -> None:
        """Delays every call to this device."""
        self._slot(uuid).slow_seconds = seconds

    def hang(self, uuid: str, hanging: bool) -> None:
        self.slow(uuid, math.inf if hanging else 0.0)

    def unsupported(self, uuid: str, ability: Ability) -> None:
        self._slot(uuid).unsupported.add(ability)

    def stale_pid(self, uuid: str, pid: int) -> None:
        """Adds a dead process to the driver's list."""
        self._slot(uuid).stale_pids.append(pid)

    # Faults of MPS.

    def mps_dies(self, uuid: str) -> None:
        self._slot(uuid).daemon.stop()

    def mps_faults(self, uuid: str) -> None:
        self._slot(uuid).daemon.fault()

    def mps_of_another(self, uuid: str, there: bool) -> None:
        """Another owner starts an MPS of its own on the GPU, or ends it."""
        self._slot(uuid).daemon.is_foreign = there

    def mps_slow(self, uuid: str, seconds: float) -> None:
        self._slot(uuid).daemon.slow_seconds = seconds

    def mps_hangs(self, uuid: str, hanging: bool) -> None:
        self.mps_slow(uuid, math.inf if hanging else 0.0)

    def mps_startable(self, uuid: str, startable: bool) -> None:
        self._slot(uuid).daemon.startable = startable

    def mps_terminates(self, uuid: str, works: bool) -> None:
        self._slot(uuid).daemon.terminates = works

    def mps_defaults(self, uuid: str, sm_percent: float, memory_gib: float | None) -> None:
        """Sets limits on the daemon, as an administrator could; a client's own count where they are lower."""
        daemon = self._slot(uuid).daemon
        daemon.default_sm_percent, daemon.default_memory_gib = sm_percent, memory_gib

    def mps_max_clients(self, uuid: str, clients: int) -> None:
        self._slot(uuid).daemon.max_clients = clients

    def _slot(self, uuid: str) -> SimulatedSlot:
        return self.at(uuid, self.now)
