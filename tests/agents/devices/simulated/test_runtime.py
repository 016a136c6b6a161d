"""Processes of the model in virtual time: they start under limits, answer, drain and exit, or fail on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.mps import SimulatedMps
from agents.runtime import CopyRuntime, Launch, LaunchError, Running
from agents.seams.device import MpsState
from agents.talk.copy_client import CopyClient, CopyPlace
from agents.templates import Filled, Probe
from tests.support.simulated_processes import Behaviour, PopulatedMachine
from tests.support.simulated_runtime import SimulatedRuntime, SimulatedTalk

FILLED = Filled(
    "server",
    ("server",),
    health=Probe("GET", "/healthz"),
    warm_up=Probe("POST", "/warmup"),
    drain=Probe("POST", "/drain"),
    set_batch=Probe("PUT", "/batch"),
    metrics=Probe("GET", "/metrics"),
    metrics_kind="gpuwright",
    checkpoint_signal="USR1",
)


class Node:
    """A node in virtual time."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.now = 0.0
        self.behaviour = behaviour or Behaviour()
        self.machine = PopulatedMachine(["v100-16gb"])
        self.uuid = next(iter(self.machine.slots))
        self.device = SimulatedDevice(self.machine, lambda: self.now)
        self.mps = SimulatedMps(self.machine, lambda: self.now, Path("/run/mps"))
        self.runtime: CopyRuntime = self.opened()
        self.talk: CopyClient = SimulatedTalk(self.machine, lambda: self.now)
        self.mps.start(self.uuid)

    def opened(self) -> SimulatedRuntime:
        return SimulatedRuntime(self.machine, lambda: self.now, lambda launch: self.behaviour)

    def start(self, copy: str = "a", port: int = 8000, sm_percent: float = 30) -> Running:
        limits = self.mps.environment(self.uuid, sm_percent, 2.0)
        running = self.runtime.start(Launch(copy, self.uuid, FILLED, port, limits))
        assert running is not None
        return running


def test_a_process_becomes_a_client_then_answers_then_is_warm() -> None:
    node = Node()
    running = node.start()
    assert node.runtime.alive(running)
    assert node.mps.clients(node.uuid) == frozenset()
    node.now = 0.6
    assert node.mps.clients(node.uuid) == {running.pid} == node.runtime.pids(running)
    assert node.device.read(node.uuid).memory_used_gib == pytest.approx(1.8)
    assert node.talk.ask(CopyPlace(8000), FILLED.health or Probe("", "")).status == 0
    node.now = 2.1
    assert node.talk.ask(CopyPlace(8000), FILLED.health or Probe("", "")).ok
    assert node.talk.ask(CopyPlace(8000), FILLED.warm_up or Probe("", "")).status == 503
    node.now = 3.1
    assert node.talk.ask(CopyPlace(8000), FILLED.warm_up or Probe("", "")).ok
    served = node.talk.served(CopyPlace(8000), FILLED)
    assert served is not None
    assert served.sm_count == 24
    assert served.memory_gib == pytest.approx(1.8)
    assert node.device.read(node.uuid).utilization_percent == pytest.approx(50)


def test_it_outlives_the_runtime_that_started_it() -> None:
    node = Node()
    running = node.start()
    node.now = 5.0
    reopened = node.opened()
    assert reopened.find() == (running,)
    reopened.end(running, force=True)
    assert reopened.find() == ()
    assert not node.runtime.alive(running)


def test_a_drained_process_exits_and_its_memory_is_free() -> None:
    node = Node()
    running = node.start()
    node.now = 5.0
    assert node.talk.ask(CopyPlace(8000), FILLED.drain or Probe("", "")).ok
    node.now = 5.5
    node.talk.ask(CopyPlace(8000), FILLED.drain or Probe("", ""))
    assert node.runtime.alive(running)
    node.now = 6.1
    assert not node.runtime.alive(running)
    assert node.mps.clients(node.uuid) == frozenset()
    assert node.device.read(node.uuid).memory_used_gib == 0
    node.runtime.end(running, force=True)  # nothing


def test_who_ignores_drain_and_sigterm_is_terminated_or_killed() -> None:
    node = Node(Behaviour(ignores_drain=True, ignores_term=True))
    first, second = node.start("a", 8000), node.start("b", 8001)
    node.now = 5.0
    node.talk.ask(CopyPlace(8000), FILLED.drain or Probe("", ""))
    node.runtime.end(first, force=False)
    node.now = 100.0
    assert node.runtime.alive(first)
    assert node.mps.terminate(node.uuid, first.pid)
    assert not node.runtime.alive(first)
    assert "810" in node.runtime.log_tail("a")
    node.runtime.end(second, force=True)
    assert not node.runtime.alive(second)


def test_a_checkpoint_signal_ends_a_job_and_another_does_not() -> None:
    node = Node()
    running = node.start()
    node.runtime.tell(running, "SIGHUP")
    node.now = 10.0
    assert node.runtime.alive(running)
    node.runtime.tell(running, "SIGUSR1")
    node.now = 12.0
    assert not node.runtime.alive(running)


def test_what_cannot_start_says_so() -> None:
    node = Node(Behaviour(starts=False))
    with pytest.raises(LaunchError, match="a: server cannot be run"):
        node.start()
    assert node.runtime.find() == ()


def test_a_client_that_is_refused_exits_and_its_log_says_why() -> None:
    node = Node(Behaviour(memory_gib=3.0))
    running = node.start()
    node.now = 1.0
    assert not node.runtime.alive(running)
    assert node.runtime.log_tail("a") == "CUDA error 2: 3 GiB exceeds the limit of 2 GiB"


def test_who_misses_mps_is_a_process_of_the_device_and_no_client() -> None:
    node = Node(Behaviour(misses_mps=True, memory_gib=4.0))
    running = node.start()
    node.now = 1.0
    assert node.mps.clients(node.uuid) == frozenset()
    assert [process.pid for process in node.device.processes(node.uuid)] == [running.pid]
    node.runtime.end(running, force=True)
    node.device.exclusive(node.uuid, True)
    kept_out = node.start("b")
    node.now = 2.0
    assert not node.runtime.alive(kept_out)


def test_a_process_that_crashes_is_gone_at_that_moment() -> None:
    node = Node(Behaviour(crashes_seconds=10.0, busy=1.0))
    running = node.start(sm_percent=100)
    node.now = 60.0  # without a look in between
    assert not node.runtime.alive(running)
    used_j = (node.device.read(node.uuid).energy_mj or 0) / 1000
    assert used_j == pytest.approx(40 * 60 + 260 * 8, rel=0.01)


def test_processes_ride_out_a_daemon_that_is_restarted_at_once_and_no_longer() -> None:
    node = Node()
    running = node.start()
    node.now = 5.0
    node.machine.advance(node.now)
    node.machine.mps_dies(node.uuid)
    node.now = 6.0
    node.mps.start(node.uuid)
    assert node.mps.clients(node.uuid) == {running.pid}
    node.machine.mps_dies(node.uuid)
    node.now = 12.0
    assert not node.runtime.alive(running)


def test_a_faulted_server_recovers_when_its_processes_have_exited() -> None:
    node = Node()
    running = node.start()
    node.now = 5.0
    node.machine.advance(node.now)
    node.machine.mps_faults(node.uuid)
    assert not node.runtime.alive(running)
    assert node.mps.state(node.uuid) is MpsState.ACTIVE


def test_what_is_tidied_away_is_forgotten() -> None:
    node = Node(Behaviour(crashes_seconds=1.0))
    node.start("a")
    node.now = 2.0
    assert node.runtime.log_tail("a") == "crashed"
    node.runtime.tidy(["a"])
    assert node.runtime.log_tail("a") == "crashed"
    node.runtime.tidy([])
    assert node.runtime.log_tail("a") == ""
    assert node.machine.processes == {}
