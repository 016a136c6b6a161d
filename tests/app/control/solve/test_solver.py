"""The solver's process: low priority, alone, deterministic by work, and never the planner's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import cast

import pytest

from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.solve.inline import Inline
from app.control.solve.process import SolverProcess
from app.control.solve.solver import Solver
from app.manifests.model import JSON
from benchmarks.families import family
from cli.bench.timed_plan import family_of
from solvers.hetsev.fleet import METHOD
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from tests.solvers.planning.random_problems import random_problem
from tests.support.missing_loop import OF_PLANS, missing_loop
from tests.support.patience import until

LONG = 600.0  # seconds: a process that waits them out was not killed


@cache
def problem() -> Problem:
    return family("A", 8, 4, 0)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def all_ended(pids: list[int]) -> bool:
    return not any(map(is_alive, pids))


def alike(plan: Plan | None) -> Plan:
    """All but the seconds."""
    assert plan
    assert plan.certificate
    return replace(plan, certificate=replace(plan.certificate, seconds=0.0))


def running(process: SolverProcess) -> list[int]:
    """The processes of a child at work, itself and both that it forked."""
    until(lambda: len(family_of(process.pid)) >= 3, "a search in processes of its own")
    return family_of(process.pid)


def has_forked_or_ended(solver: Solver, answering: Future[SolverAnswer]) -> bool:
    return answering.done() or len(family_of(solver.full.pid)) >= 3


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.slow
def test_it_is_another_process_at_nice_15_on_one_core(solver: Solver) -> None:
    assert solver.solve(problem(), seconds=LONG, work=1).outcome is SolveOutcome.SOLVED
    pid = solver.full.pid
    assert pid != os.getpid()
    assert os.getpriority(os.PRIO_PROCESS, pid) == 15
    assert len(os.sched_getaffinity(pid)) == 1


@pytest.mark.slow
def test_it_starts_with_nothing_of_ours_but_three_streams(solver: Solver) -> None:
    solver.solve(problem(), seconds=LONG, work=1)
    held = {str(file.readlink()) for file in Path(f"/proc/{solver.full.pid}/fd").iterdir()}
    assert not any(name.startswith("socket:") for name in held)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_same_work_gives_the_same_plan_here_and_there(solver: Solver, seed: int) -> None:
    problem = random_problem(seed)
    there = solver.solve(problem, seconds=LONG, work=6, seed=seed)
    here = Inline().solve(problem, seconds=0, work=6, seed=seed)
    assert alike(there.plan) == alike(here.plan)
    assert there.counted == here.counted


@pytest.mark.slow
def test_a_search_cut_by_its_seconds_says_at_which_step_and_is_found_again_by_it(solver: Solver) -> None:
    answer = solver.solve(family("A", 64, 24, 0), seconds=0.2, work=1_000_000)
    assert answer.outcome is SolveOutcome.SOLVED
    assert answer.counted["cut"] is True
    assert answer.plan
    assert answer.plan.certificate
    assert answer.counted["work"] == answer.plan.certificate.work
    repeated = solver.repeat(family("A", 64, 24, 0), answer.counted, seconds=LONG)
    assert repeated.plan
    assert repeated.plan.instances == answer.plan.instances


@pytest.mark.slow
def test_a_fault_in_a_solver_is_an_outcome_with_its_message(solver: Solver) -> None:
    answer = solver.solve(cast(Problem, "no problem"), seconds=LONG, work=1)
    assert answer.outcome is SolveOutcome.WRONG
    assert "has no attribute" in answer.message
    assert solver.solve(problem(), seconds=LONG, work=1).outcome is SolveOutcome.SOLVED


@pytest.mark.slow
def test_while_its_loops_are_compiled_another_method_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with missing_loop(tmp_path, OF_PLANS) as supply, closing(Solver(grace_seconds=60)) as solver:
        assert solver.solve(problem(), seconds=LONG, work=1).outcome is SolveOutcome.COMPILING
        certificate = alike(solver.add(problem(), seconds=LONG).plan).certificate
        assert certificate
        assert certificate.method == METHOD

        supply()
        until(lambda: not solver.full.is_compiling(), "a solver that has its loops")
        assert solver.solve(problem(), seconds=LONG, work=1).outcome is SolveOutcome.SOLVED


@pytest.mark.slow
def test_steps_that_find_nothing_are_a_fault(solver: Solver) -> None:
    counted: dict[str, JSON] = {"seed": 0, "work": 0, "exact": False, "horizonMinutes": 60.0}
    answer = solver.repeat(problem(), counted, seconds=LONG)
    assert (answer.outcome, answer.message) == (
        SolveOutcome.WRONG,
        "SolverBug: the search with seed 0 finds no plan at step 0",
    )


@pytest.mark.slow
def test_case_19_infeasible_is_a_plan_with_a_reason_for_each_service(solver: Solver) -> None:
    tight = replace(
        problem(), services={name: replace(service, slo_ms=0.01) for name, service in problem().services.items()}
    )
    answer = solver.solve(tight, seconds=LONG, work=4)
    assert answer.outcome is SolveOutcome.SOLVED
    assert answer.plan
    assert {left.service for left in answer.plan.unserved} == set(tight.services)
    assert all(left.reason for left in answer.plan.unserved)
    assert not judge(tight, answer.plan).violations


@pytest.mark.slow
def test_case_19_out_of_time_is_an_outcome_and_nothing_of_it_stays() -> None:
    solver = Solver(grace_seconds=0.5)
    try:
        solver.full.start().result()
        pid = solver.full.pid
        os.kill(pid, signal.SIGSTOP)  # it would never answer, and honours no budget
        answer = solver.solve(problem(), seconds=0.5, work=1)
        assert (answer.outcome, answer.plan, answer.message) == (SolveOutcome.OUT_OF_TIME, None, "no answer within 1 s")
        assert answer.counted == {"seed": 0, "work": 1}
        assert not is_alive(pid)
    finally:
        solver.close()


@pytest.mark.slow
def test_case_19_out_of_time_amid_the_search_ends_what_was_forked_too(aside: ThreadPoolExecutor) -> None:
    """On a busy machine a search may be out of time before it has forked: then one that is given longer is tried."""
    for seconds in (2.0, 8.0, 32.0, 128.0):
        solver = Solver(grace_seconds=seconds - LONG)  # the process believes that it has longer than it is given
        try:
            answering = aside.submit(solver.solve, family("A", 64, 24, 0), seconds=LONG, work=None)
            until(partial(has_forked_or_ended, solver, answering), "a search in processes of its own, or its end")
            forked = family_of(solver.full.pid)
            assert answering.result().outcome is SolveOutcome.OUT_OF_TIME
            if len(forked) >= 3:
                until(partial(all_ended, forked), "the end of all three")
                return
        finally:
            solver.close()
    raise AssertionError("no search ever forked")


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1, 2])
def test_case_19_a_process_killed_amid_the_search_costs_one_answer_at_most(
    solver: Solver, aside: ThreadPoolExecutor, which: int
) -> None:
    answering = aside.submit(solver.solve, family("A", 64, 24, 0), seconds=2, work=None)
    forked = running(solver.full)
    os.kill(forked[which], signal.SIGKILL)
    answer: SolverAnswer = answering.result()
    if which == 0:
        assert (answer.outcome, answer.plan) == (SolveOutcome.CRASHED, None)
        assert answer.message == "the solver's process ended with SIGKILL"
        until(lambda: not any(map(is_alive, forked)), "the end of all three")
    else:  # one that it forked: its earlier messages remain valid
        assert answer.outcome is SolveOutcome.SOLVED
    assert solver.solve(problem(), seconds=LONG, work=1).outcome is SolveOutcome.SOLVED


@pytest.mark.slow
def test_killed_between_two_questions_it_is_replaced_and_the_log_names_it(
    solver: Solver, caplog: pytest.LogCaptureFixture
) -> None:
    solver.solve(problem(), seconds=LONG, work=1)
    dead = solver.full.pid
    os.kill(dead, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{dead}").exists(), "it is not even a zombie")
    assert solver.solve(problem(), seconds=LONG, work=1).outcome is SolveOutcome.SOLVED
    assert solver.full.pid != dead
    assert f"solver process {dead} (full) has ended; the next order starts another one" in caplog.text


@pytest.mark.slow
def test_closing_ends_a_search_and_notifies_its_waiters(aside: ThreadPoolExecutor) -> None:
    solver = Solver()
    answering = aside.submit(solver.solve, family("A", 64, 24, 0), seconds=LONG, work=None)
    forked = running(solver.full)
    solver.close()
    assert answering.result().outcome is SolveOutcome.CRASHED
    until(lambda: not any(map(is_alive, forked)), "the end of all three")


@pytest.mark.slow
def test_it_dies_with_the_planner() -> None:
    program = (
        "from app.control.solve.solver import Solver\n"
        "from benchmarks.families import family\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "solver = Solver()\n"
        "asked = ThreadPoolExecutor(1).submit(solver.solve, family('A', 64, 24, 0), seconds=600, work=None)\n"
        "import time\n"
        "while not solver.full.pid: time.sleep(0.01)\n"
        "print(solver.full.pid, flush=True)\n"
        "asked.result()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as planner:
        assert planner.stdout
        pid = int(planner.stdout.readline())
        until(lambda: len(family_of(pid)) >= 3, "a search in processes of its own")
        forked = family_of(pid)
        planner.kill()
    until(lambda: not any(map(is_alive, forked)), "the end of all three")
