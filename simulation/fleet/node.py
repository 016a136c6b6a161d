"""A node without processes: the agent's own decisions, copies that take time, GPUs that draw power.

The code of a real agent (`agents.keeper.decide`) decides what to start and stop; a copy is ready after its profile's
startSeconds. Its reports are built by the same code as a real agent's.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.fits import GpuRules
from agents.control.assignments import AssignmentVerdict, judge_assignment
from agents.keeper import decide as deciding
from agents.keeper.copies import DOWN, NodeCopy, Stage
from agents.keeper.decide import HeldStart, WantedInstance
from agents.keeper.failures import Failures
from agents.keeper.room import HOLD_NOTHING
from agents.node import reporting
from agents.node.report_minute import CopyTotals, ReportMinute
from agents.node.state_folder import AgentMemory
from agents.runtime import Running
from agents.seams.device import GpuReading
from simulation.clock import Clock
from simulation.fleet_truth import FleetTruth
from simulation.serving.copies import CopyWork, count_move_seconds
from simulation.serving.token_copies import new_work
from solvers.planning.problem import ProfileKey

if TYPE_CHECKING:
    from simulation.fleet.node_reports import Speaker

ROUTE_SECONDS = 0.2
DRAIN_SECONDS = 1.0
JOB_SAVES_SECONDS = 2.0
BEGAN_MJ = 10**9  # that a GPU had drawn before
HALF = (Stage.STARTING, Stage.VERIFYING, Stage.WARMING, Stage.ROUTING)


class LightNode:
    """One node of a simulated fleet. `tick` moves it to the clock's time."""

    def __init__(self, name: str, gpu_type: str, gpus: int, truth: FleetTruth, clock: Clock, seed: int) -> None:
        self.name = name
        self.gpu_type = gpu_type
        self.truth = truth
        self.clock = clock
        self.uuids = tuple(f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{name}/{place}')}" for place in range(gpus))
        self.copies: dict[str, NodeCopy] = {}  # stopped ones stay until their usage was reported
        self.work: dict[str, CopyWork] = {}
        self.held: tuple[HeldStart, ...] = ()
        self.memory = AgentMemory(incarnation=1)
        self.stale = 0
        self.version = 0
        self.contact = True
        self.news = True
        # Faults.
        self.lost: set[int] = set()
        self.gateway_away = False
        self.clock_off = timedelta()
        self.failing: dict[str, int] = {}  # by instance: how many starts are yet to fail
        self.failing_gpus: set[int] = set()  # on which every start fails
        self.reclaim_at: datetime | None = None  # as its cloud has told it
        self.drained = False  # as its cluster has told it
        self.repartition: tuple[int, ...] = ()  # GPUs whose limits it cannot keep by clock and batch alone
        self.is_off = False  # the machine is gone
        # Memory.
        self.minute = ReportMinute(_minute_of(self.date()), {})
        self.finished: tuple[ReportMinute, Mapping[str, CopyTotals]] | None = None
        self.energy_mj = dict.fromkeys(self.uuids, BEGAN_MJ)
        self._failures = Failures()
        self._established: dict[str, AssignedInstance] = {}
        self._rng = random.Random(f"{seed} {name}")  # noqa: S311
        self._born = 0
        self._ready_at: dict[str, float] = {}

    def date(self) -> datetime:
        """Returns the date by the node's own clock, which may be wrong."""
        return self.clock.now() + self.clock_off

    def open_speaker(self) -> Speaker:
        """Returns what reports for it."""
        from simulation.fleet.node_reports import Speaker

        return Speaker(self)

    # Input.

    def offer(self, offered: Assignment) -> AssignmentVerdict:
        """Accepts an assignment unless it knows a newer one (I1)."""
        verdict = judge_assignment(self.memory, offered)
        if verdict is AssignmentVerdict.STALE:
            self.stale += 1
        elif verdict is AssignmentVerdict.TAKE:
            self.memory = AgentMemory(self.memory.incarnation, offered.epoch, offered.generation, offered)
            self.news = True
        self.version = offered.version
        return verdict

    def restart(self) -> None:
        """Replaces the agent by a new one; running copies continue, and what they have served is not counted again."""
        self.memory = AgentMemory(
            self.memory.incarnation + 1, self.memory.epoch, self.memory.generation, self.memory.assignment
        )
        self.minute, self.finished = ReportMinute(_minute_of(self.date()), self.totals()), None
        self.news = True

    # Faults.

    def lose(self, gpu: int) -> None:
        """Drops the GPU off the bus, with everything that runs on it."""
        self.lost.add(gpu)
        for copy in self.alive():
            if self.uuids[gpu] in copy.devices:
                self._gone(copy, "exited", "the GPU is lost")

    def give_back(self, gpu: int) -> None:
        self.lost.discard(gpu)
        self.news = True

    def kill(self, copy: str) -> None:
        """Kills the process of a copy."""
        if copy in self.copies and self.copies[copy].stage is not Stage.GONE:
            self._gone(self.copies[copy], "exited", "it exited by itself")

    def switch_off(self) -> None:
        """Switches the machine off, with everything that runs on it."""
        self.is_off = True
        for copy in self.alive():
            self._gone(copy, "exited", "the machine is gone")

    def switch_on(self) -> None:
        """Starts the machine again; nothing runs there."""
        self.is_off = False
        self.restart()

    # Progress.

    def tick(self) -> None:
        """Starts and stops copies that are due, and begins what is wanted."""
        if self.is_off:
            return
        self._turn_the_minute()
        for copy in self.alive():
            self._advance(copy)
        for _ in range(3):
            if not self._decide():
                break

    def alive(self) -> list[NodeCopy]:
        return [copy for copy in self.copies.values() if copy.stage is not Stage.GONE]

    def serving(self) -> list[NodeCopy]:
        """Returns the copies that get requests: the newest of each instance."""
        newest = {copy.instance: copy for copy in self.alive() if copy.served and copy.stage is Stage.READY}
        return list(newest.values())

    def index(self, copy: NodeCopy) -> int:
        return self.uuids.index(copy.gpu)

    def key(self, copy: NodeCopy) -> ProfileKey:
        return copy.wanted.model, copy.wanted.variant, self.gpu_type

    def clock_mhz(self, gpu: int) -> float:
        gpus = self.memory.assignment.gpus if self.memory.assignment else ()
        frame = next((planned.clock_mhz for planned in gpus if planned.index == gpu), None)
        return frame.planned if frame else self.truth.kind(self.gpu_type).top_clock_mhz

    def read(self, gpu: int, watts: float, utilization: float, seconds: float) -> None:
        """Reads a device: its power, and how busy it was since the last read."""
        if gpu in self.lost:
            return
        uuid_ = self.uuids[gpu]
        self.energy_mj[uuid_] += int(watts * seconds * 1000)
        holding = [copy for copy in self.alive() if uuid_ in copy.devices and copy.stage not in HOLD_NOTHING]
        reading = GpuReading(
            memory_used_gib=sum(copy.wanted.memory_gib for copy in holding),
            utilization_percent=min(100.0, utilization),
            power_w=watts,
            energy_mj=self.energy_mj[uuid_],
            temperature_c=35.0 + watts / 10,
            sm_clock_mhz=self.clock_mhz(gpu),
        )
        self.minute.read(uuid_, reading)

    def totals(self) -> dict[str, CopyTotals]:
        return {copy.id: self.work[copy.id].totals(copy) for copy in self.alive()}

    def _turn_the_minute(self) -> None:
        minute = _minute_of(self.date())
        if minute != self.minute.began:
            totals = self.totals()
            self.finished, self.minute = (self.minute, totals), ReportMinute(minute, totals)

    def _decide(self) -> bool:
        assignment = self.memory.assignment
        if assignment is None:
            return False
        now = self.clock.seconds
        wanted = [self._meant(instance) for instance in assignment.instances]
        node = deciding.NodeConstraints(
            memory_gib=dict.fromkeys(self.uuids, self.truth.kind(self.gpu_type).memory_gib),
            fenced={self.uuids[gpu]: "it is lost" for gpu in self.lost},
            resting=self._failures.resting(assignment.instances, now),
            contact=self.contact,
            established=[name for name, as_it_was in self._established.items() if as_it_was in assignment.instances],
            swapped=[line.id for line in assignment.swapped],
        )
        alive = self.alive()
        decision = deciding.decide(wanted, alive, node, GpuRules.of(assignment))
        if decision.held != self.held:
            self.held, self.news = decision.held, True
        for going in decision.take_down:
            self._move(self.copies[going.copy], Stage.DRAINING, going.reason)
        for name in decision.swap_out:
            self._move(self.copies[name], Stage.SWAPPING)
        for name in decision.bring_back:
            self._move(self.copies[name].begin_spell(self.date()), Stage.RETURNING)
        for start in decision.start:
            self._start(start.wanted)
        for want in wanted:
            right = deciding.right_copy(want, [copy for copy in self.alive() if copy.instance == want.instance.id])
            if right is not None and right.wanted != want.instance:  # its knobs are set, and its process stays
                self.copies[right.id] = msgspec.structs.replace(right, wanted=want.instance)
        return decision.changes_copies

    def _meant(self, instance: AssignedInstance) -> WantedInstance:
        there = tuple(self.uuids[gpu] if gpu < len(self.uuids) else "" for gpu in instance.all_gpus)
        return WantedInstance(instance, there[0], there if instance.is_wide else ())

    def _start(self, wanted: WantedInstance) -> None:
        self._born += 1
        now, instance = self.clock.seconds, wanted.instance
        name = f"{instance.id}.{self.memory.incarnation}.{self._born}"
        port = 20000 + self._born % 20000 if instance.service else 0
        copy = NodeCopy(
            name, instance, wanted.gpu, port=port, largest_batch=instance.batch.max if instance.batch else 0.0,
            running=Running(name, 1000 + self._born, int(now * 100), "simulated"), born=now, since=now,
            started_at=self.date(), gpus=wanted.gpus,
        )  # fmt: skip
        self.copies[name] = copy
        self.work[name] = new_work(copy, now)
        seconds = self.truth.starts_in(self.key(copy)) if copy.served else 5.0
        self._ready_at[name] = now + seconds * self._rng.uniform(0.95, 1.05)
        self.news = True

    def _advance(self, copy: NodeCopy) -> None:
        now = self.clock.seconds
        match copy.stage:
            case Stage.STARTING if now >= self._ready_at[copy.id]:
                if self.index(copy) in self.failing_gpus:
                    self._gone(copy, "not_warm", "its warm-up failed")
                elif self.failing.get(copy.instance, 0) > 0:
                    self.failing[copy.instance] -= 1
                    self._gone(copy, "not_warm", "its warm-up failed")
                else:
                    self._move(copy, Stage.ROUTING if copy.served else Stage.READY)
            case Stage.ROUTING if now >= copy.since + ROUTE_SECONDS and not self.gateway_away:
                self._move(copy, Stage.READY)
                self._established[copy.instance] = copy.wanted
            case Stage.SWAPPING if now >= copy.since + JOB_SAVES_SECONDS + count_move_seconds(copy):
                ended_at = max(self.date(), copy.started_at or self.date())
                self._move(msgspec.structs.replace(copy, ended_at=ended_at), Stage.SWAPPED)
            case Stage.RETURNING if now >= copy.since + count_move_seconds(copy):
                self._move(copy, Stage.READY)
            case Stage.DRAINING if not (copy.served and self.gateway_away):
                patience = DRAIN_SECONDS if copy.served else JOB_SAVES_SECONDS
                if now >= copy.since + patience and not self.work[copy.id].waits:
                    self._gone(copy)
            case _:
                pass

    def _move(self, copy: NodeCopy, stage: Stage, reason: str = "") -> None:
        self.copies[copy.id] = copy.at(stage, self.clock.seconds, reason)
        self.news = True
        if stage in DOWN and copy.stage in HALF:
            self._gone(self.copies[copy.id])

    def _gone(self, copy: NodeCopy, reason: str = "", message: str = "") -> None:
        """Removes the process. A failed one waits before it is tried again."""
        now = self.clock.seconds
        if reason:
            ready_seconds = now - copy.since if copy.stage is Stage.READY else 0.0
            self._failures.note(copy.wanted, reason, message, ready_seconds, now)
        self.work[copy.id].fail()
        gone = copy.at(Stage.GONE, now, reason, message)
        ended_at = copy.ended_at or max(self.date(), copy.started_at or self.date())  # in host memory it held nothing
        self.copies[copy.id] = msgspec.structs.replace(gone, ended_at=ended_at)
        self.news = True

    def note_usage(self, opened: Mapping[str, str]) -> None:
        """Forgets ended copies whose usage the control plane has stored."""
        for interval, what in opened.items():
            name, spell = reporting.copy_and_spell(interval)
            copy = self.copies.get(name)
            if copy is None:
                continue
            self.copies[name] = copy = copy.acknowledge(spell, what)
            if copy.settled:
                del self.copies[name], self.work[name]
                self._ready_at.pop(name, None)


def _minute_of(date: datetime) -> datetime:
    return date.replace(second=0, microsecond=0)
