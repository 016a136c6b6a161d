"""A node with a real agent in virtual time: keeper, watch and power loop, over a simulated machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from agents.contract.assignments import Assignment
from agents.contract.reports import Inventory, Report
from agents.control.assignments import AssignmentVerdict, judge_assignment
from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.mps import SimulatedMps
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import NodeDrivers
from agents.node.node import LocalNode
from agents.node.parts import NodeParts
from agents.node.report_minute import CopyTotals, ReportMinute
from agents.node.reporting import ReportBody
from agents.node.state_folder import AgentMemory, StateFolder
from agents.run.opening import NoGateway
from agents.runtime import CopyRuntime, Launch
from agents.seams.routes import Routes
from agents.templates.reading import Template, read
from simulation.clock import Clock
from simulation.fleet.fleet import NodeMaker
from simulation.fleet.node import LightNode
from simulation.fleet.node_reports import Speaker
from simulation.fleet_truth import FleetTruth
from simulation.serving.token_copies import new_work
from tests.support.simulated_processes import Behaviour, PopulatedMachine
from tests.support.simulated_runtime import SimulatedRuntime, SimulatedTalk

TICK_SECONDS = 0.25  # of the keeper; the watch looks once a second


class WholeNode(LightNode):
    """A node like any other to a fleet: its copies are an agent's, its devices a simulated machine's."""

    def __init__(
        self, name: str, gpu_type: str, gpus: int, truth: FleetTruth, clock: Clock, folder: Path, seed: int
    ) -> None:
        super().__init__(name, gpu_type, gpus, truth, clock, seed)
        self.machine = PopulatedMachine([gpu_type] * gpus, name=name)
        self.uuids = tuple(self.machine.slots)
        self._now = clock.seconds
        self._looked_at = float("-inf")
        self.folder = StateFolder(folder)
        self._runtime = SimulatedRuntime(self.machine, self._seconds, self._behave)
        self._bodies: dict[int, ReportBody] = {}
        self._inventory_sent: Inventory | None = None
        self.agent = self.open_agent()
        self.agent.set_contact(True)

    def open_agent(self) -> LocalNode:
        """Starts an agent over the machine as it is."""
        device = SimulatedDevice(self.machine, self._seconds)
        mps = SimulatedMps(self.machine, self._seconds, self.folder.path / "mps")
        drivers = NodeDrivers(device, mps, self.runtime(), SimulatedTalk(self.machine, self._seconds))
        parts = NodeParts(drivers, self.routes(), self.templates())
        incarnation = self.memory.incarnation
        return LocalNode(self.folder, parts, incarnation, workers=0, clock=self._seconds, date=self.date)

    def runtime(self) -> CopyRuntime:
        """Returns what the agent starts and ends processes with."""
        return self._runtime

    def templates(self) -> Mapping[str, Template]:
        return read()

    def routes(self) -> Routes:
        """Returns the gateway that the agent declares its routes to."""
        return NoGateway()

    def offer(self, offered: Assignment) -> AssignmentVerdict:
        verdict = judge_assignment(self.memory, offered)
        if verdict is AssignmentVerdict.TAKE:
            self.memory = AgentMemory(self.memory.incarnation, offered.epoch, offered.generation, offered)
            self.agent.offer(offered)
        elif verdict is AssignmentVerdict.STALE:
            self.stale += 1
        self.version = offered.version
        return verdict

    def tick(self) -> None:
        """Does what the agent's clock requires since the last tick."""
        self.agent.set_contact(self.contact)
        while self._now < self.clock.seconds - 1e-9:
            self._now = min(self._now + TICK_SECONDS, self.clock.seconds)
            if self._now - self._looked_at >= 1.0 - 1e-9:
                self._looked_at = self._now
                self.agent.watch.tick()
            self.agent.keeper.tick()
        self.note_copies()

    def note_copies(self) -> None:
        """Takes over what copies the agent knows, each with its work."""
        there = {copy.id: copy for copy in self.agent.keeper.copies()}
        if there.keys() != self.copies.keys() or any(there[name].stage != self.copies[name].stage for name in there):
            self.news = True
        self.copies = there
        self.work = {name: self.work.get(name) or new_work(copy, self._now) for name, copy in there.items()}

    def clock_mhz(self, gpu: int) -> float:
        """Returns the device's clock."""
        return float(self.machine.slots[self.uuids[gpu]].gpu.clock_mhz)

    def read(self, gpu: int, watts: float, utilization: float, seconds: float) -> None:
        """Reads the machine, and passes its copies' work to their processes."""
        for copy in self.alive():
            process = self._runtime.process(copy.id)
            if copy.gpu != self.uuids[gpu] or process is None:
                continue
            work = self.work[copy.id]
            process.counters = work.counters()
            if process.context is not None and copy.stage is Stage.READY:
                self.machine.busy(copy.gpu, process.context, work.busy_share)

    def note_stored(self, report: Report, dropped: Sequence[str]) -> None:
        """Notes that the report was stored."""
        body = self._bodies.pop(report.sequence, None)
        if report.inventory is not None:
            self._inventory_sent = report.inventory
        if body is not None:
            self.agent.acknowledge(body.usage, dropped)

    def close(self) -> None:
        self.agent.stop()

    def open_speaker(self) -> Speaker:
        return WholeSpeaker(self)

    def build_report(self, sequence: int, minute: ReportMinute, totals: Mapping[str, CopyTotals]) -> Report:
        """Returns the agent's own report, built by its own code."""
        body, inventory = self.agent.report_body(minute, totals), self.agent.inventory()
        self._bodies[sequence] = body
        return Report(
            node=self.name,
            incarnation=self.memory.incarnation,
            sequence=sequence,
            at=self.date(),
            minute=minute.began,
            boot_id="simulated",
            epoch=self.memory.epoch,
            generation=self.memory.generation,
            assignment_version=self.version,
            stale_assignments=self.stale,
            inventory=None if inventory == self._inventory_sent else inventory,
            **{**msgspec.structs.asdict(body), "reclaim_at": self.reclaim_at, "drained": self.drained},
        )

    def _seconds(self) -> float:
        return self._now

    def _behave(self, launch: Launch) -> Behaviour:
        """Warms up for its profile's startSeconds."""
        wanted = {copy.id: copy for copy in self.agent.keeper.copies()}.get(launch.copy)
        seconds = self.truth.starts_in(self.key(wanted)) if isinstance(wanted, NodeCopy) and wanted.served else 3.0
        return Behaviour(opens_seconds=0.5, answers_seconds=min(1.0, seconds), warm_seconds=seconds, busy=0.0)


class WholeSpeaker(Speaker):
    """Reports for a whole node, as its agent builds them."""

    node: WholeNode

    def reports(self) -> list[Report]:
        self.node.news = False
        finished = self.node.agent.take_finished()
        found = [self._next(*finished)] if finished is not None else []
        return [*found, self._next(*self.node.agent.current_minute())]

    def note_stored(self, report: Report, dropped: Sequence[str]) -> None:
        self.node.note_stored(report, dropped)

    def _next(self, minute: ReportMinute, totals: Mapping[str, CopyTotals]) -> Report:
        sequence, self._sequence = self._sequence, self._sequence + 1
        return self.node.build_report(sequence, minute, totals)


def make_whole_nodes(folder: Path) -> NodeMaker:
    """Returns the maker of nodes whose agents keep their state in `folder`."""
    return lambda node, truth, clock, seed: WholeNode(
        node.name, node.gpu_type, node.gpu_count, truth, clock, folder / node.name, seed
    )
