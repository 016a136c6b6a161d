"""A node's GPUs and MPS daemons as a model in explicit time, with a switch for every fault. No clock inside, no I/O.

What a machine is told and asked takes effect at the moment it was last advanced to. It outlives the agent that uses
it, as hardware does: settings, clients and the originals that are to be restored are in here.
"""

from __future__ import annotations

import itertools
import math
import uuid as uuids
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agents.devices.simulated.context import SimulatedContext
from agents.devices.simulated.daemon import SimulatedDaemon
from agents.devices.simulated.gpu import SimulatedGpu
from agents.devices.simulated.kinds import KINDS
from agents.devices.simulated.process import Process
from agents.devices.simulated.refusals import CANNOT_CONNECT, NO_DEVICE, TERMINATED, CudaRefusal
from agents.devices.simulated.truth import GpuTruth, SetValues
from agents.seams.device import Ability, XidEvent

Setters = Literal["work", "ignored", "no_permission"]
FELL_OFF_THE_BUS = 79
MOST_EVENTS = 4096


def settings(gpu: SimulatedGpu) -> SetValues:
    """What is set on it now."""
    return SetValues(gpu.locked_mhz, gpu.cap_w, gpu.exclusive)


@dataclass(slots=True, eq=False)
class SimulatedSlot:
    """One GPU in its place: the device, its daemon, and what is wrong with the way to it."""

    gpu: SimulatedGpu
    daemon: SimulatedDaemon
    lost: bool = False
    reads_fail: bool = False
    setters: Setters = "work"
    slow_seconds: float = 0.0  # added to every call; infinite: it hangs
    unsupported: set[Ability] = field(default_factory=set)
    stale_pids: list[int] = field(default_factory=list)  # listed by the driver, and gone
    original: SetValues | None = None  # before the first change through a device
    processes: list[Process] = field(default_factory=list)  # of the model's own that are for this GPU
    due_at: float = math.inf  # when one of them does something by itself


class Machine:
    """`kinds` names the GPU in each place. `name` is the machine's own: the same name has the same UUIDs."""

    def __init__(self, kinds: Sequence[str], name: str = "node", now: float = 0.0) -> None:
        self.now = now
        self.slots: dict[str, SimulatedSlot] = {}
        for place, kind in enumerate(kinds):
            if kind not in KINDS:
                raise ValueError(f"no GPU kind {kind!r}; there are {', '.join(sorted(KINDS))}")
            uuid = f"GPU-{uuids.uuid5(uuids.NAMESPACE_OID, f'{name}/{place}')}"
            gpu = SimulatedGpu(KINDS[kind], uuid, f"00000000:{place + 1:02X}:00.0", now)
            self.slots[uuid] = SimulatedSlot(gpu, SimulatedDaemon(gpu))
        self.writes = 0  # changes that reached the driver, refused ones included
        self.driver_loaded = True
        self.pid_exists: Callable[[int], bool] = lambda pid: True  # the model's own hold nothing when they are gone
        self.pids = itertools.count(1000)
        self.processes: dict[int, Process] = {}  # the model's own, also those that are gone
        self._events: deque[tuple[int, XidEvent]] = deque(maxlen=MOST_EVENTS)
        self._event_count = 0

    def advance(self, now: float) -> None:
        """Let time pass everywhere."""
        for uuid in self.slots:
            self.at(uuid, now)

    def at(self, uuid: str, now: float) -> SimulatedSlot:
        """One GPU's slot, at this time: the others can catch up when they are asked. Raises KeyError."""
        self.now = max(self.now, now)
        slot = self.slots[uuid]
        while slot.due_at <= self.now:
            moment = max(slot.due_at, slot.gpu.now)
            slot.gpu.advance(moment)
            slot.due_at = math.inf
            for process in list(slot.processes):
                slot.due_at = min(slot.due_at, process.live(slot.gpu, slot.daemon, slot.lost, moment))
            slot.processes = [process for process in slot.processes if process.exited_at is None]
        slot.gpu.advance(self.now)
        return slot

    def events_since(self, seen: int) -> tuple[int, tuple[XidEvent, ...]]:
        """Events after the first `seen`, and how many there have been: what to ask with the next time."""
        return self._event_count, tuple(event for number, event in self._events if number > seen)

    # Processes.

    def attach(
        self, uuid: str, pid: int, sm_percent: float, memory_limit_gib: float | None, memory_gib: float
    ) -> SimulatedContext:
        """A process opens the device through the MPS daemon of that GPU. Raises CudaRefusal."""
        slot = self._slot(uuid)
        if slot.lost:
            raise CudaRefusal(CANNOT_CONNECT, "the GPU is lost")
        return slot.daemon.attach(pid, sm_percent, memory_limit_gib, memory_gib)

    def open_outside(self, uuid: str, pid: int, memory_gib: float) -> SimulatedContext:
        """A process opens the device without MPS: nothing limits it. Raises CudaRefusal."""
        slot = self._slot(uuid)
        if slot.lost:
            raise CudaRefusal(NO_DEVICE, "the GPU is lost")
        return slot.daemon.let_past(pid, memory_gib)

    def vacate(self, pid: int) -> None:
        """A process outside MPS closes the device, wherever it has it open."""
        for uuid, slot in self.slots.items():
            for context in [one for one in slot.gpu.contexts if one.pid == pid and not one.under_mps]:
                self.close(uuid, context)

    def hold(self, uuid: str, context: SimulatedContext, memory_gib: float) -> None:
        """The process holds that much device memory from now on. Raises CudaRefusal."""
        if context.error is None:
            self._slot(uuid).gpu.hold(context, memory_gib)

    def busy(self, uuid: str, context: SimulatedContext, fraction: float) -> None:
        """The part of the time in which the process keeps its multiprocessors at work from now on."""
        gpu = self._slot(uuid).gpu
        if context.error is None and context.busy != fraction:
            context.busy = min(1.0, max(0.0, fraction))
            gpu.changed()

    def close(self, uuid: str, context: SimulatedContext) -> None:
        """The process is gone, or closes its context."""
        self._slot(uuid).daemon.leave(context)

    # What others do to it, and see of it.

    def preset(self, uuid: str, cap_w: float, exclusive: bool) -> None:
        """An administrator had set this before any agent came."""
        gpu = self._slot(uuid).gpu
        gpu.cap_w, gpu.exclusive = cap_w, exclusive
        gpu.changed()

    def truth(self, uuid: str) -> GpuTruth:
        gpu = self._slot(uuid).gpu
        return GpuTruth(settings(gpu), gpu.power_w, gpu.peak_w, (gpu.energy_j - gpu.energy_zero_j), gpu.load)

    def how_many_writes(self) -> int:
        """Changes of clocks, limits and modes that reached the driver, refused ones included."""
        return self.writes

    # Faults of GPUs.

    def lose(self, uuid: str) -> None:
        """It falls off the bus: its processes fail, its MPS server faults, and nothing answers for it."""
        slot = self._slot(uuid)
        if slot.lost:
            return
        slot.daemon.fault()
        for context in slot.gpu.contexts:
            context.error, context.busy = TERMINATED, 0.0
        slot.lost = True
        self.xid(uuid, FELL_OFF_THE_BUS)

    def give_back(self, uuid: str) -> None:
        """It is back after a reset: without locks, limits of others, contexts, and with its counters at 0."""
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
        """The driver reports a critical error."""
        self._event_count += 1
        self._events.append((self._event_count, XidEvent(uuid, number)))

    def ecc(self, uuid: str, uncorrected: int) -> None:
        self._slot(uuid).gpu.ecc_uncorrected += uncorrected

    def heat(self, uuid: str, extra_c: float) -> None:
        """A blocked fan, a hot aisle: so much warmer at any load; 0 ends it."""
        gpu = self._slot(uuid).gpu
        gpu.extra_heat_c = extra_c
        gpu.changed()

    def age(self, uuid: str, heat_c_per_day: float = 0.0, clock_loss_per_day: float = 0.0) -> None:
        """It wears out from now on: warmer by the day, or a part of its highest clock lost by the day."""
        gpu = self._slot(uuid).gpu
        gpu.heat_c_per_day, gpu.clock_loss_per_day, gpu.aged_since = heat_c_per_day, clock_loss_per_day, gpu.now
        gpu.changed()

    def slow_down(self, uuid: str, reasons: Sequence[str]) -> None:
        """The hardware holds the clock at its lowest for these reasons (hw_slowdown, power_brake); none ends it."""
        gpu = self._slot(uuid).gpu
        gpu.forced_reasons = frozenset(reasons)
        gpu.changed()

    def reload_driver(self) -> None:
        """Energy counters begin at 0, clock locks are lost."""
        for uuid in self.slots:
            gpu = self._slot(uuid).gpu
            gpu.energy_zero_j, gpu.locked_mhz = gpu.energy_j, None
            gpu.changed()

    def load_driver(self, loaded: bool) -> None:
        self.driver_loaded = loaded

    def reads_fail(self, uuid: str, failing: bool) -> None:
        self._slot(uuid).reads_fail = failing

    def setters(self, uuid: str, how: Setters) -> None:
        """`ignored`: success without effect."""
        self._slot(uuid).setters = how

    def slow(self, uuid: str, seconds: float) -> None:
        """Every call to this device takes so long."""
        self._slot(uuid).slow_seconds = seconds

    def hang(self, uuid: str, hanging: bool) -> None:
        self.slow(uuid, math.inf if hanging else 0.0)

    def unsupported(self, uuid: str, ability: Ability) -> None:
        self._slot(uuid).unsupported.add(ability)

    def stale_pid(self, uuid: str, pid: int) -> None:
        """The driver lists a process that is gone."""
        self._slot(uuid).stale_pids.append(pid)

    # Faults of MPS.

    def mps_dies(self, uuid: str) -> None:
        self._slot(uuid).daemon.stop()

    def mps_faults(self, uuid: str) -> None:
        self._slot(uuid).daemon.fault()

    def mps_slow(self, uuid: str, seconds: float) -> None:
        self._slot(uuid).daemon.slow_seconds = seconds

    def mps_hangs(self, uuid: str, hanging: bool) -> None:
        self.mps_slow(uuid, math.inf if hanging else 0.0)

    def mps_startable(self, uuid: str, startable: bool) -> None:
        self._slot(uuid).daemon.startable = startable

    def mps_terminates(self, uuid: str, works: bool) -> None:
        self._slot(uuid).daemon.terminates = works

    def mps_defaults(self, uuid: str, sm_percent: float, memory_gib: float | None) -> None:
        """Limits that an administrator gave the daemon; a client's own count where they are lower."""
        daemon = self._slot(uuid).daemon
        daemon.default_sm_percent, daemon.default_memory_gib = sm_percent, memory_gib

    def mps_max_clients(self, uuid: str, clients: int) -> None:
        self._slot(uuid).daemon.max_clients = clients

    def _slot(self, uuid: str) -> SimulatedSlot:
        """For a change: whatever it is, the processes there see to it at once."""
        slot = self.at(uuid, self.now)
        slot.due_at = self.now
        return slot
