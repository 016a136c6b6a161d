"""Case 11: the agent is killed at every step of a hand-over, and the next one goes on or turns back."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agents.contract import Assignment
from agents.runtime.process import ProcessRuntime
from agents.talk import ask
from agents.templates import Probe
from tests.support.nodes import Machine, around, assigned, machine, served
from tests.support.soak import SOAK, scaled

LONGEST_STEPS = 12  # a hand-over writes nine lines; what follows kills nobody


class Deaths:
    """One machine on which agents live and die."""

    def __init__(self, made: Machine) -> None:
        self.made = made
        self.life = 0
        self.gaps: list[float] = []
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def want(self, assignment: Assignment) -> None:
        (self.made.folder / "assignment.json").write_bytes(msgspec.json.encode(assignment))

    def live(self, die_at: int = 0, when: str = "never") -> int:
        """One agent's life; how it ended."""
        self.life += 1
        words = [str(self.made.folder), str(self.life), str(die_at), when]
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.dying_agent", *words], capture_output=True, text=True, timeout=120
        )
        assert done.returncode in (0, -9), done.stdout + done.stderr
        return done.returncode

    def watch(self) -> None:
        self._watching.start()

    def stop(self) -> None:
        self._over.set()
        self._watching.join()

    def _watch(self) -> None:
        """Notes every moment at which no copy answers that it is ready."""
        runtime = ProcessRuntime(self.made.folder / "copies")
        while not self._over.is_set():
            ports = [_port(running.pid) for running in runtime.find()]
            if not any(port and ask(port, Probe("GET", "/healthz", seconds=1.0)).ok for port in ports):
                self.gaps.append(time.monotonic())
            time.sleep(0.02)


@pytest.fixture
def deaths(tmp_path: Path) -> Iterator[Deaths]:
    with machine(tmp_path, ["v100-16gb"]) as made:
        yield Deaths(made)


def test_case_11_killed_at_every_step_the_next_agent_gets_there(deaths: Deaths) -> None:
    deaths.want(assigned(1, served("search-1", sm=30)))
    assert deaths.live() == 0
    deaths.watch()
    sm = 30
    kills = 0
    for _ in range(scaled(10, 1)):
        for when in ("before", "after"):
            for step in range(1 if SOAK or when == "before" else 2, LONGEST_STEPS, 1 if SOAK else 6):
                sm = 80 - sm
                deaths.want(assigned(step, served("search-1", sm=sm)))
                killed = deaths.live(step, when) == -9
                kills += killed
                if killed:
                    assert deaths.live() == 0
                is_clean(deaths.made, sm)
    deaths.stop()
    assert kills >= scaled(160, 4)
    assert not deaths.gaps


def test_case_11_killed_again_and_again_it_gets_there_all_the_same(deaths: Deaths) -> None:
    chance = random.Random(11)
    deaths.want(assigned(1, served("search-1", sm=30)))
    assert deaths.live() == 0
    deaths.watch()
    sm = 30
    for generation in range(scaled(20, 1)):
        sm = 80 - sm
        deaths.want(assigned(generation, served("search-1", sm=sm)))
        while deaths.live(chance.randint(1, 3), chance.choice(["before", "after"])) == -9:
            pass
        is_clean(deaths.made, sm)
    deaths.stop()
    assert not deaths.gaps


def is_clean(made: Machine, sm: float) -> None:
    """One process, under MPS with its limit, and no memory held by anybody else."""
    hands = around(made.folder).hands
    (running,) = hands.runtime.find()
    gpu = hands.device.gpus()[0].uuid
    assert hands.mps.clients(gpu) == {running.pid}
    assert [process.pid for process in hands.device.processes(gpu)] == [running.pid]
    environment = Path(f"/proc/{running.pid}/environ").read_text().split("\0")
    assert f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={sm:g}" in environment


def _port(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return 0
    return next((int(word.partition("=")[2]) for word in words if word.startswith("GPUWRIGHT_PORT=")), 0)
