"""A node's keeper over a simulated machine in virtual time: the model is detailed enough for hand-overs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.contract.assignments import AssignedInstance
from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.mps import SimulatedMps
from agents.host import clocks
from agents.host.clocks import date
from agents.keeper.copies import Stage
from agents.keeper.drivers import NodeDrivers
from agents.keeper.filler import Filler
from agents.keeper.journal import Journal
from agents.keeper.keeper import Keeper
from agents.keeper.ledger import CopyLedger
from agents.keeper.reconciling import Situation
from agents.keeper.routing import GatewayRoutes
from agents.node.copy_counters import CopyCounters
from agents.node.device_watch import DeviceWatch
from agents.run.opening import NoGateway
from agents.runtime import Launch
from agents.templates.reading import read
from tests.support.nodes import assigned, served
from tests.support.simulated_processes import Behaviour, PopulatedMachine
from tests.support.simulated_runtime import SimulatedRuntime, SimulatedTalk

TICK_SECONDS = 0.25


class VirtualNode:
    """A keeper without threads, and a clock that the test moves."""

    def __init__(self, folder: Path, gpus: int = 1) -> None:
        self.now = 100.0
        self.behaviour = Behaviour()  # of processes started from now on
        self.machine = PopulatedMachine(["v100-16gb"] * gpus, now=self.now)
        self.device = SimulatedDevice(self.machine, self.clock)
        self.mps = SimulatedMps(self.machine, self.clock, folder / "mps")
        runtime = SimulatedRuntime(self.machine, self.clock, self.behave)
        self.drivers = NodeDrivers(self.device, self.mps, runtime, SimulatedTalk(self.machine, self.clock))
        journal, routes, filler = (
            Journal(folder / "journal"),
            GatewayRoutes(NoGateway(), self.clock),
            Filler(read(), "127.0.0.1"),
        )
        self.keeper = Keeper(
            CopyLedger(journal, date), self.drivers, routes, filler, 1, "127.0.0.1", self.clock, 0, None
        )
        self.keeper.set_contact(True)
        self.generation = 0

    def clock(self) -> float:
        return self.now

    def behave(self, launch: Launch) -> Behaviour:
        return self.behaviour

    def offer(self, *instances: AssignedInstance) -> None:
        self.generation += 1
        self.keeper.offer(assigned(self.generation, *instances))

    def passes(self, seconds: float) -> Iterator[float]:
        """Advances time; the test looks after every tick."""
        until = self.now + seconds
        while self.now < until:
            self.now += TICK_SECONDS
            self.keeper.update_situation(Situation({gpu.index: gpu for gpu in self.device.gpus()}))
            self.keeper.tick()
            yield self.now

    def ready(self) -> list[str]:
        """Instances with a copy that is ready, and whose process runs under MPS."""
        return sorted(
            copy.instance
            for copy in self.keeper.copies()
            if copy.stage is Stage.READY
            and copy.running is not None
            and self.drivers.runtime.alive(copy.running)
            and copy.running.pid in self.mps.clients(copy.gpu)
        )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[VirtualNode]:
    node = VirtualNode(tmp_path)
    yield node
    node.keeper.stop()
    node.keeper.close()


def test_a_resize_keeps_a_ready_copy_throughout_and_leaves_one(node: VirtualNode) -> None:
    uuid = next(iter(node.machine.slots))
    node.offer(served("resnet", sm=30))
    for _ in node.passes(20):
        pass
    assert node.ready() == ["resnet"]
    before = node.mps.clients(uuid)
    node.offer(served("resnet", sm=50))
    for now in node.passes(120):
        assert "resnet" in node.ready(), f"nobody serves at {now}"
    after = node.mps.clients(uuid)
    assert len(after) == 1
    assert after != before
    assert [context.sm_count for context in node.machine.slots[uuid].gpu.contexts] == [40]
    assert node.device.read(uuid).memory_used_gib == pytest.approx(1.8)


def test_a_copy_that_misses_mps_is_never_ready(node: VirtualNode) -> None:
    node.behaviour = Behaviour(misses_mps=True, memory_gib=1.0)
    node.offer(served("resnet"))
    for _ in node.passes(60):
        assert node.ready() == []
    assert all(context.under_mps for slot in node.machine.slots.values() for context in slot.gpu.contexts)


@pytest.mark.slow
def test_a_successor_that_does_not_warm_up_leaves_the_old_one_as_it_was(node: VirtualNode) -> None:
    uuid = next(iter(node.machine.slots))
    node.offer(served("resnet", sm=30))
    for _ in node.passes(20):
        pass
    before = node.mps.clients(uuid)
    node.behaviour = Behaviour(warms_up=False)
    node.offer(served("resnet", sm=50))
    for _ in node.passes(400):
        assert "resnet" in node.ready()
    assert before <= node.mps.clients(uuid)


@pytest.mark.slow
def test_a_gpu_whose_mps_daemon_does_not_start_stays_fenced_and_is_logged_once(
    node: VirtualNode, caplog: pytest.LogCaptureFixture
) -> None:
    uuid = next(iter(node.machine.slots))
    census = CopyCounters(node.drivers.talk, node.keeper.filler, None)
    watch = DeviceWatch(
        node.drivers, node.keeper, census, {}, lambda _: None, {}, {}, clock=node.clock, date=clocks.date
    )
    node.offer(served("resnet"))
    for _ in node.passes(20):
        watch.tick()
    assert node.ready() == ["resnet"]
    node.machine.mps_startable(uuid, False)
    node.machine.mps_dies(uuid)
    for _ in node.passes(30):
        watch.tick()
    for now in node.passes(60):
        watch.tick()
        assert watch.devices.verdicts[uuid].fenced, f"it passes for sound at {now}"
        assert [held.missing.reason for held in node.keeper.held] == ["gpu_recycled"]
    assert len([record for record in caplog.records if "does not start" in record.getMessage()]) == 1
    node.machine.mps_startable(uuid, True)
    for _ in node.passes(40):
        watch.tick()
    assert not watch.devices.verdicts[uuid].fenced
    assert node.ready() == ["resnet"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "message"),
    [("its MPS", "this agent did not start"), ("a process", "process 77 has it to itself, outside MPS")],
)
def test_nothing_starts_on_a_gpu_of_another_owner_until_it_is_given_back(
    node: VirtualNode, what: str, message: str
) -> None:
    uuid = next(iter(node.machine.slots))

    def take(there: bool) -> None:
        if what == "its MPS":
            node.machine.mps_of_another(uuid, there)
        elif there:
            node.machine.open_outside(uuid, 77, 1.0)
            node.machine.preset(uuid, node.device.gpus()[0].power_default_w, exclusive=True)
        else:
            node.machine.vacate(77)

    take(True)
    node.offer(served("resnet"))
    for _ in node.passes(60):
        assert node.ready() == []
        ours = [context for context in node.machine.slots[uuid].gpu.contexts if context.pid != 77]
        assert not ours, "nor does anything run without a limit"
    (held,) = node.keeper.held
    assert held.missing.reason == "not_started"
    assert message in held.missing.message
    take(False)
    for _ in node.passes(600):
        pass
    assert node.ready() == ["resnet"]
