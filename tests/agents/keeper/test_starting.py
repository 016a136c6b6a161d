"""How a copy comes up: its limits are verified before it gets any work, and no copy waits for the answer of another."""

from __future__ import annotations

import threading
from pathlib import Path

from agents.contract.assignments import AssignedAdapter
from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.mps import SimulatedMps
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import NodeDrivers
from agents.keeper.starting import STRAY_SECONDS, StartContext, start_copy
from agents.keeper.step_runner import Result, StepRunner, do_nothing
from agents.seams.device import GpuProcess
from agents.talk.copy_client import CopyPlace, CopyReply
from agents.templates import Filled, Probe
from tests.support.nodes import served
from tests.support.patience import patience
from tests.support.simulated_processes import Behaviour, PopulatedMachine
from tests.support.simulated_runtime import SimulatedRuntime, SimulatedTalk

HEALTH, WARM_UP = Probe("GET", "/healthz"), Probe("POST", "/infer")
BOTH = Filled("both", ("serve",), health=HEALTH, warm_up=WARM_UP)
OPENS_SECONDS = 0.5  # when a process opens its GPU, and is healthy
LIST_SECONDS = 0.1  # until the processes of a GPU are listed


class SlowTalk(SimulatedTalk):
    """Each answer takes a while, in which processes go on."""

    def __init__(self, machine: PopulatedMachine) -> None:
        super().__init__(machine, lambda: self.now)
        self.now = 0.0
        self.asked: list[Probe] = []

    def ask(self, copy: CopyPlace, probe: Probe, **values: float) -> CopyReply:
        self.now += OPENS_SECONDS
        self.asked.append(probe)
        return super().ask(copy, probe, **values)


class SlowDevice(SimulatedDevice):
    """The list of processes takes a while, in which they go on."""

    def __init__(self, machine: PopulatedMachine, talk: SlowTalk) -> None:
        super().__init__(machine, lambda: talk.now)
        self._talk = talk

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        self._talk.now += LIST_SECONDS
        return super().processes(uuid)


class StartingCopy:
    """A copy on a simulated GPU, and the steps by which it starts."""

    def __init__(self, folder: Path, behaviour: Behaviour) -> None:
        machine = PopulatedMachine(["v100-16gb"])
        (self.gpu,) = machine.slots
        self.talk = SlowTalk(machine)
        self.device = SlowDevice(machine, self.talk)
        self.drivers = NodeDrivers(
            self.device,
            SimulatedMps(machine, lambda: self.talk.now, folder),
            SimulatedRuntime(machine, lambda: self.talk.now, lambda launch: behaviour),
            self.talk,
        )

    def begin(self) -> NodeCopy:
        begun = self.step(NodeCopy("search-1.1.1", served("search-1"), self.gpu, port=18_000))
        assert begun is not None
        return begun

    def step(self, copy: NodeCopy) -> NodeCopy | None:
        return start_copy(StartContext(copy, BOTH, self.device.gpus()[0]), self.drivers, self.talk.now)


def test_a_copy_that_opens_its_gpu_while_its_health_is_asked_is_verified_before_its_warm_up(tmp_path: Path) -> None:
    copy = StartingCopy(tmp_path, Behaviour(opens_seconds=OPENS_SECONDS, answers_seconds=OPENS_SECONDS))
    begun = copy.begin()
    assert copy.step(begun) is None
    assert copy.talk.asked == [HEALTH]
    verified = copy.step(begun)
    assert verified is not None
    assert verified.stage is Stage.WARMING


def test_a_copy_that_connects_to_mps_between_two_looks_is_not_taken_for_one_outside(tmp_path: Path) -> None:
    """However late: its clients were listed before it opened the GPU, and the GPU's processes after."""
    late = STRAY_SECONDS + 2.0
    copy = StartingCopy(tmp_path, Behaviour(opens_seconds=late, answers_seconds=late))
    begun = copy.begin()
    copy.talk.now = late - LIST_SECONDS / 2
    seen = copy.step(begun)
    assert seen is not None
    assert seen.stage is Stage.VERIFYING
    verified = copy.step(seen)
    assert verified is not None
    assert verified.stage is Stage.WARMING


def test_adapters_are_loaded_once_a_copy_is_warm_and_before_it_is_routed(tmp_path: Path) -> None:
    copy = StartingCopy(tmp_path, Behaviour())
    loaded: list[Stage] = []
    wanted = served("search-1", adapters=(AssignedAdapter("law", "adapters/law"),))
    running = NodeCopy("search-1.1.1", wanted, copy.gpu, port=18_000)
    while running.stage is not Stage.ROUTING:
        context = StartContext(running, BOTH, copy.device.gpus()[0], load_adapters=lambda at: loaded.append(at.stage))
        running = start_copy(context, copy.drivers, copy.talk.now) or running
        copy.talk.now += 1.0
        assert copy.talk.now < 60.0
    assert loaded == [Stage.WARMING]
    assert copy.talk.asked[-2:] == [HEALTH, WARM_UP]


def test_however_many_steps_wait_for_their_copies_the_next_begins() -> None:
    runner = StepRunner(workers=4, wake=do_nothing)
    answers, begun = threading.Event(), threading.Semaphore(0)

    def wait() -> Result:
        begun.release()
        answers.wait()
        return do_nothing

    for number in range(100):
        runner.do(f"copy-{number}", wait, waits=True)
    try:
        assert all(begun.acquire(timeout=patience()) for _ in range(100)), "all wait at once"
    finally:
        answers.set()
        runner.stop()
