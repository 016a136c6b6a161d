"""A whole node in virtual time: keeper and watch without threads, over a simulated machine and simulated processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agents.contract.assignments import AssignedGpu, AssignedInstance, Frame
from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.mps import SimulatedMps
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import NodeDrivers
from agents.node.node import LocalNode
from agents.node.parts import NodeParts
from agents.node.state_folder import StateFolder
from agents.run.opening import NoGateway
from agents.runtime import Launch
from agents.seams.routes import Routes
from agents.seams.traffic import Counters
from agents.templates.reading import Template, read
from tests.support.nodes import assigned
from tests.support.simulated_processes import Behaviour, PopulatedMachine, Process
from tests.support.simulated_runtime import SimulatedRuntime, SimulatedTalk

BEGAN = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
TICK_SECONDS = 0.25  # of the keeper; the watch looks once a second
GatewayCounters = Callable[[], Mapping[str, Counters]]


class VirtualNode:
    """Time stands still but for `passes`."""

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[str] = ("v100-16gb",),
        routes: Routes | None = None,
        counters: GatewayCounters | None = None,
        templates: Mapping[str, Template] | None = None,
    ) -> None:
        self.now = 100.0
        self.behaviours: dict[str, Behaviour] = {}  # by instance, of what is started from now on
        self.folder = folder
        self.machine = PopulatedMachine(kinds, now=self.now)
        self.uuids = list(self.machine.slots)
        self.device = SimulatedDevice(self.machine, self.clock)
        self.mps = SimulatedMps(self.machine, self.clock, folder / "mps")
        self.runtime = SimulatedRuntime(self.machine, self.clock, self._behave)
        self._around = NodeParts(
            NodeDrivers(self.device, self.mps, self.runtime, SimulatedTalk(self.machine, self.clock)),
            routes or NoGateway(),
            templates or read(),
            counters,
        )
        self.generation = 0
        self._looked_at = float("-inf")
        self.node = self._opened(1)

    def clock(self) -> float:
        return self.now

    def date(self) -> datetime:
        return BEGAN + timedelta(seconds=self.now - 100.0)

    def _behave(self, launch: Launch) -> Behaviour:
        return self.behaviours.get(launch.copy.rsplit(".", 2)[0], Behaviour())

    def _opened(self, incarnation: int) -> LocalNode:
        node = LocalNode(
            StateFolder(self.folder), self._around, incarnation, workers=0, clock=self.clock, date=self.date
        )
        node.set_contact(True)
        return node

    def restart(self) -> None:
        """The agent ends, and another begins; what runs goes on running."""
        self.node.keeper.close()
        self.node = self._opened(2)

    def offer(self, *instances: AssignedInstance, gpus: Sequence[AssignedGpu] = ()) -> None:
        self.generation += 1
        self.node.offer(assigned(self.generation, *instances, gpus=gpus))

    def passes(self, seconds: float, tick_seconds: float = TICK_SECONDS) -> Iterator[float]:
        """Time goes on; the test looks after every tick."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now += tick_seconds
            if self.now - self._looked_at >= 1.0 - 1e-9:
                self._looked_at = self.now
                self.node.watch.tick()
            self.node.keeper.tick()
            yield self.now

    def advance(self, seconds: float) -> None:
        for _ in self.passes(seconds):
            pass

    def copy(self, name: str) -> NodeCopy:
        """The one copy of an instance."""
        (found,) = [copy for copy in self.node.keeper.copies() if copy.instance == name]
        return found

    def process(self, name: str) -> Process:
        found = self.runtime.process(self.copy(name).id)
        assert found is not None
        return found

    @property
    def ready(self) -> list[str]:
        """Instances with a ready copy, a name for each."""
        return sorted(copy.instance for copy in self.node.keeper.copies() if copy.stage is Stage.READY)

    @property
    def held(self) -> dict[str, str]:
        return {one.instance: one.missing.reason for one in self.node.keeper.held}


@contextmanager
def virtual(
    folder: Path,
    kinds: Sequence[str] = ("v100-16gb",),
    routes: Routes | None = None,
    counters: GatewayCounters | None = None,
) -> Iterator[VirtualNode]:
    made = VirtualNode(folder, kinds, routes, counters)
    try:
        yield made
    finally:
        made.node.stop()


def job(name: str, gpu: int = 0, sm: float = 30, memory: float = 4.0, preemptible: bool = True) -> AssignedInstance:
    """An instance of gpuwright-train."""
    return AssignedInstance(
        name, gpu, "shop", job=name, template="gpuwright-train", sm_percent=sm, memory_gib=memory,
        preemptible=preemptible,
    )  # fmt: skip


def capped(watts: float, clock: Frame | None = None, index: int = 0) -> AssignedGpu:
    """A GPU of type v100-16gb with a cap, at its highest clock by plan."""
    return AssignedGpu(index, clock_mhz=clock or Frame(1380, 810, 1380), cap_w=watts)
