"""How a copy comes up: its limits are verified before it gets any work, and no copy waits for the answer of another."""

from __future__ import annotations

import threading
from pathlib import Path

from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.machine import Machine
from agents.devices.simulated.mps import SimulatedMps
from agents.devices.simulated.process import Behaviour
from agents.devices.simulated.runtime import SimulatedRuntime, SimulatedTalk
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import NodeDrivers
from agents.keeper.starting import StartContext, start_copy
from agents.keeper.step_runner import Result, StepRunner, do_nothing
from agents.talk.copy_client import CopyReply
from agents.templates import Filled, Probe
from tests.support.caller import GIVE_UP_SECONDS
from tests.support.nodes import served

HEALTH, WARM_UP = Probe("GET", "/healthz"), Probe("POST", "/infer")
BOTH = Filled("both", ("serve",), health=HEALTH, warm_up=WARM_UP)
OPENS_SECONDS = 0.5  # when a process opens its GPU, and is healthy


class SlowTalk(SimulatedTalk):
    """Each answer takes a while, in which processes go on."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine, lambda: self.now)
        self.now = 0.0
        self.asked: list[Probe] = []

    def ask(self, port: int, probe: Probe, **values: float) -> CopyReply:
        self.now += OPENS_SECONDS
        self.asked.append(probe)
        return super().ask(port, probe, **values)


def test_a_copy_that_opens_its_gpu_while_its_health_is_asked_is_verified_before_its_warm_up(tmp_path: Path) -> None:
    machine = Machine(["v100-16gb"])
    (gpu,) = machine.slots
    talk = SlowTalk(machine)
    behaviour = Behaviour(opens_seconds=OPENS_SECONDS, answers_seconds=OPENS_SECONDS)
    drivers = NodeDrivers(
        device := SimulatedDevice(machine, lambda: talk.now),
        SimulatedMps(machine, lambda: talk.now, tmp_path),
        SimulatedRuntime(machine, lambda: talk.now, lambda launch: behaviour),
        talk,
    )

    def step(copy: NodeCopy) -> NodeCopy | None:
        return start_copy(StartContext(copy, BOTH, device.gpus()[0]), drivers, talk.now)

    begun = step(NodeCopy("search-1.1.1", served("search-1"), gpu, port=18_000))
    assert begun is not None
    assert step(begun) is None
    assert talk.asked == [HEALTH]
    verified = step(begun)
    assert verified is not None
    assert verified.stage is Stage.WARMING


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
        assert all(begun.acquire(timeout=GIVE_UP_SECONDS) for _ in range(100)), "all wait at once"
    finally:
        answers.set()
        runner.stop()
