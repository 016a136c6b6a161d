"""Processes on simulated GPUs: each opens its GPU after a while, answers, drains and exits, or fails, by its script."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from agents.devices.simulated.client import RECONNECT_SECONDS
from agents.devices.simulated.context import SimulatedContext
from agents.devices.simulated.daemon import SimulatedDaemon
from agents.devices.simulated.gpu import SimulatedGpu
from agents.devices.simulated.limits import read_limits
from agents.devices.simulated.machine import Machine, SimulatedSlot
from agents.devices.simulated.refusals import NO_DEVICE, CudaRefusal
from agents.runtime import Launch, Running
from agents.seams.traffic import Counters

BOOT_ID = "simulated"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviour of a process after its start; seconds count from there unless stated otherwise."""

    starts: bool = True  # False: it cannot be started
    opens_seconds: float = 0.5  # until it opens the device
    answers_seconds: float = 2.0  # until its port answers
    warm_seconds: float = 3.0  # until its warm-up succeeds
    warms_up: bool = True
    misses_mps: bool = False  # it does not find the daemon, and runs without it
    memory_gib: float | None = None  # memory that it holds; None: nine tenths of its limit
    busy: float = 0.5  # once it answers
    crashes_seconds: float = math.inf
    drain_seconds: float = 1.0  # from the drain hook or its checkpoint signal to its exit
    ignores_drain: bool = False
    term_seconds: float = 0.2  # from SIGTERM to its exit
    ignores_term: bool = False
    ignores_kill: bool = False  # it hangs in the kernel
    steps_per_second: float = 0.0  # of a job, once it answers
    swaps: bool = True  # on SIGTSTP it moves its memory to the host and stops, on SIGCONT back


@dataclass(slots=True, eq=False)
class Process:
    """One process. `live` makes it do what is due; others see its state as of the last call."""

    launch: Launch
    behaviour: Behaviour
    pid: int
    started_at: float
    exits_at: float = math.inf
    exited_at: float | None = None
    context: SimulatedContext | None = None
    opened: bool = False
    orphaned_at: float | None = None  # since when its daemon is gone
    swapped_gib: float | None = None  # that it has moved to the host while it is stopped
    log: str = ""
    # The work it does for others, written by the traffic simulation.
    counters: Counters = field(default_factory=Counters)
    batch: int | None = None
    batch_timeout_ms: float | None = None

    @property
    def running(self) -> Running:
        return Running(self.launch.copy, self.pid, int(self.started_at * 100), BOOT_ID)

    @property
    def answers_at(self) -> float:
        return self.started_at + self.behaviour.answers_seconds

    def exit_by(self, moment: float) -> None:
        """Makes it exit by then, if not before."""
        self.exits_at = min(self.exits_at, moment)

    def swap(self, gpu: SimulatedGpu, out: bool) -> None:
        """Moves its memory to the host and stops, or moves it back and goes on; without room for it, it exits."""
        context = self.context
        if not self.behaviour.swaps or context is None or context.error is not None:
            return
        if out and self.swapped_gib is None:
            self.swapped_gib, context.busy = context.memory_gib, 0.0
            gpu.hold(context, 0.0)
        elif not out and self.swapped_gib is not None:
            held_gib, self.swapped_gib = self.swapped_gib, None
            try:
                gpu.hold(context, held_gib)
                context.busy = self.behaviour.busy
            except CudaRefusal as refused:
                self.log = str(refused)
                self.exit_by(gpu.now)
        gpu.changed()

    def live(self, gpu: SimulatedGpu, daemon: SimulatedDaemon, lost: bool, now: float) -> float:
        """Does what is due and returns when something is due next."""
        if self.exited_at is not None:
            return math.inf
        opens_at = self.started_at + self.behaviour.opens_seconds
        crashes_at = self.started_at + self.behaviour.crashes_seconds
        if crashes_at <= now:
            return self._exit(daemon, now, "crashed")
        if self.exits_at <= now:
            return self._exit(daemon, now, self.log)
        try:
            if not self.opened and opens_at <= now:
                self.opened = True
                self.context = self._open(gpu, daemon, lost)
            elif self.context is not None and self.context.error is not None:
                if self.context.error:
                    return self._exit(daemon, now, f"CUDA error {self.context.error}: the context is gone")
                self._come_back(gpu, daemon, lost, now)
        except CudaRefusal as refused:
            if self.orphaned_at is None:
                return self._exit(daemon, now, str(refused))
        if self.orphaned_at is not None and now >= self.orphaned_at + RECONNECT_SECONDS:
            return self._exit(daemon, now, f"the MPS daemon did not come back within {RECONNECT_SECONDS:g} s")
        context = self.context
        is_idle = context is not None and context.error is None and not context.busy and self.swapped_gib is None
        if context is not None and is_idle and now >= self.answers_at:
            context.busy = self.behaviour.busy
            gpu.changed()
        moments = [opens_at, self.answers_at, crashes_at, self.exits_at]
        if self.orphaned_at is not None:
            moments.append(self.orphaned_at + RECONNECT_SECONDS)
        return min((moment for moment in moments if moment > now), default=math.inf)

    def _open(self, gpu: SimulatedGpu, daemon: SimulatedDaemon, lost: bool) -> SimulatedContext:
        if lost:
            raise CudaRefusal(NO_DEVICE, "the GPU is lost")
        limits = read_limits(self.launch.limits)
        memory_gib = self.behaviour.memory_gib
        if limits is None or self.behaviour.misses_mps or not daemon.up:
            return daemon.let_past(self.pid, memory_gib or 0.0)
        if memory_gib is None:
            memory_gib = 0.9 * (limits.memory_gib or 0.0)
        return daemon.attach(self.pid, limits.sm_percent, limits.memory_gib, memory_gib)

    def _come_back(self, gpu: SimulatedGpu, daemon: SimulatedDaemon, lost: bool, now: float) -> None:
        """Reconnects if its daemon was restarted; waits if it may be soon."""
        if self.orphaned_at is None:
            self.orphaned_at = now
        if daemon.up:
            self.context = self._open(gpu, daemon, lost)
            self.orphaned_at = None

    def _exit(self, daemon: SimulatedDaemon, now: float, why: str) -> float:
        if self.context is not None:
            daemon.leave(self.context)
        self.exited_at, self.log = now, why
        return math.inf


class PopulatedMachine(Machine):
    """A machine on which processes live; they react at once to changes of their GPU and its daemon."""

    def __init__(self, kinds: Sequence[str], name: str = "node", now: float = 0.0) -> None:
        super().__init__(kinds, name, now)
        self.pids = itertools.count(1000)
        self.processes: dict[int, Process] = {}  # including those that are gone

    def at(self, uuid: str, now: float) -> SimulatedSlot:
        slot, until = self.slots[uuid], max(self.now, now)
        running = (process for process in self.processes.values() if process.exited_at is None)
        there = [process for process in running if process.launch.gpu == uuid]
        moment = slot.gpu.now
        while there and moment <= until:
            slot.gpu.advance(moment)
            moment = min(process.live(slot.gpu, slot.daemon, slot.lost, moment) for process in there)
        return super().at(uuid, now)
