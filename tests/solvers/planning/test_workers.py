"""If solver processes are killed or raise, there still is a valid plan, and its method says what happened."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.families import family
from solvers.planning.judge import judge
from solvers.planning.problem import Demand, GpuType, Node, Problem, Profile, Service, Variant
from solvers.planning.solve import SolveBudget, solve
from solvers.planning.workers import Worker, gather
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

WORK = 6
SECONDS = 0.5  # a death comes somewhere in them, or the work is done before
KILLS, RAISES = scaled(70, 4), scaled(30, 3)


def fleet(seed: int) -> Problem:
    """Returns 24 GPUs and 12 services: more than a moment's work for either process."""
    r = Random(seed)
    models = {f"m{number}": (Variant("v", 0.8),) for number in range(12)}
    profiles, services = {}, {}
    for number, model in enumerate(models):
        base_ms = r.uniform(3, 12)
        demand = Demand(pressure=((10, 0.1), (100, 0.8)), sensitivity=r.uniform(0, 0.4))
        for kind, slower in (("big", 1.0), ("old", 1.8)):
            curves = {
                batch: tuple((sm, base_ms * slower * (0.5 + 0.5 * batch) * (0.7 + 15 / sm)) for sm in (10, 40, 100))
                for batch in (1, 2, 4, 8)
            }
            memory = {batch: 1.0 + batch / 4 for batch in curves}
            profiles[model, "v", kind] = Profile(model, "v", kind, curves, memory, demand)
        name = f"shop/s{number}"
        rate = r.uniform(40, 160)
        services[name] = Service(name, "shop", model, ("v",), base_ms * r.uniform(6, 15), 98, rate)
    return Problem(
        {"big": GpuType("big", 16, 40, 300, (1000,)), "old": GpuType("old", 8, 20, 200, (1000,))},
        {
            f"n{i}": Node(f"n{i}", "big" if i % 2 else "old", (0, 1, 2, 3), 64, 256, 2.0 if i % 2 else 1.0)
            for i in range(6)
        },
        models,
        profiles,
        services,
    )


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_worker_killed_at_a_random_moment_costs_no_plan(seed: int) -> None:
    problem, r = fleet(seed), Random(seed)
    after, solved, killed = r.uniform(0, SECONDS), threading.Event(), threading.Event()
    others = children()  # of the tests before, such as a database

    def workers() -> list[int]:
        return [pid for pid in children() if pid not in others]

    def kill() -> None:
        while not solved.is_set() and len(workers()) <= seed % 2:
            time.sleep(0.001)
        solved.wait(after)
        here = workers()
        if len(here) > seed % 2 and is_stopped(here[seed % 2]):
            os.kill(here[seed % 2], signal.SIGKILL)
            killed.set()

    killer = threading.Thread(target=kill)
    killer.start()
    plan = solve(problem, SolveBudget(seconds=None, work=WORK, seed=seed))
    solved.set()
    killer.join()
    assert judge(problem, plan).violations == ()
    assert plan.certificate
    method = plan.certificate.method
    assert ("died" in method) == killed.is_set() or "proved" in method


@pytest.mark.parametrize("seed", [2, 0][: scaled(2, 1)])
@pytest.mark.parametrize("late", [0, 1])
def test_whichever_process_is_late_counted_work_gives_the_same_plan(seed: int, late: int) -> None:
    problem = family("A", 8, 4, seed)
    budget = SolveBudget(seconds=None, work=20, seed=seed)
    solved, others = threading.Event(), children()

    def hold_back() -> None:
        while not solved.is_set() and len(here := [pid for pid in children() if pid not in others]) <= late:
            time.sleep(0.001)
        if not solved.is_set() and is_stopped(here[late]):
            solved.wait(1)
            with suppress(ProcessLookupError):  # the answer needed nothing of it
                os.kill(here[late], signal.SIGCONT)

    holder = threading.Thread(target=hold_back)
    holder.start()
    plan = solve(problem, budget)
    solved.set()
    holder.join()
    again = solve(problem, budget)
    assert plan.certificate and again.certificate
    assert replace(plan, certificate=None) == replace(again, certificate=None)
    assert replace(plan.certificate, seconds=0.0) == replace(again.certificate, seconds=0.0)


def children() -> list[int]:
    """Returns the child processes, the oldest first."""
    return sorted(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def is_stopped(pid: int) -> bool:
    """Stops a process where it is; False if it has ended already."""
    try:
        os.kill(pid, signal.SIGSTOP)
        while (state := Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]) not in "TZX":
            time.sleep(0.0001)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state == "T"


@dataclass(frozen=True)
class Poisoned(Problem):
    """A problem that, read in another process than its maker's, fails after so many readings."""

    maker: int = 0
    readings: int = 0
    error: type[Exception] = MemoryError

    def __getattribute__(self, name: str) -> object:
        if name == "policy" and os.getpid() != object.__getattribute__(self, "maker"):
            left = object.__getattribute__(self, "readings") - 1
            object.__setattr__(self, "readings", left)
            if left < 0:
                raise object.__getattribute__(self, "error")("poison")
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("seed", range(RAISES))
def test_workers_that_raise_cost_no_plan(seed: int) -> None:
    problem, r = fleet(seed), Random(seed)
    known = {part.name: getattr(problem, part.name) for part in fields(problem)}
    error = (MemoryError, ValueError, OSError)[seed % 3]
    poisoned = Poisoned(**known, maker=os.getpid(), readings=r.choice([0, 1, 2]), error=error)
    plan = solve(poisoned, SolveBudget(seconds=None, work=WORK, seed=seed))
    assert judge(problem, plan).violations == ()
    assert plan.certificate
    assert "died; its results so far are used" in plan.certificate.method


def test_a_process_out_of_memory_is_a_death_like_any_other() -> None:
    def greedy() -> Iterator[int]:
        yield 1
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        np.ones(2**34)
        yield 2

    worker, well = Worker("greedy", greedy()), Worker("well", iter([10, 20]))
    assert sorted(gather([worker, well], None)) == [1, 10, 20]
    assert worker.failed
    assert not well.failed


def test_a_death_is_noticed_while_the_other_works_on() -> None:
    def dies() -> Iterator[int]:
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

    def works() -> Iterator[int]:
        while True:
            time.sleep(0.01)
            yield 2

    workers = [Worker("works", works()), Worker("dies", dies())]
    for _ in gather(workers, time.monotonic() + 60):
        if workers[1].failed:
            break
    assert workers[1].failed
    assert not any(worker.process.is_alive() for worker in workers)
