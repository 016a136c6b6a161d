"""docs/mathematics.md speaks of the code as it is: its worked example is what `solve` finds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from app.control.formulate.problem import build_problem
from app.manifests.offline import load
from cli.main import main
from solvers.latency import kernels, limits
from solvers.planning import finish
from solvers.planning.bound.fleet import fleet, look_at
from solvers.planning.exact import scope
from solvers.planning.jobs import exact as every_placement
from solvers.planning.judge import JudgedPlan, Verdict, judge
from solvers.planning.problem import Problem
from solvers.planning.replan import replanner
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.bound.proved import bound_at

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "two-gpus.yaml"
TEXT = (ROOT / "docs" / "mathematics.md").read_text()
PLAIN = " ".join(TEXT.split())


@pytest.fixture(scope="module")
def problem() -> Problem:
    return build_problem(load([EXAMPLE]))


@pytest.mark.parametrize("page", ["mathematics.md", "papers.md"])
def test_the_tests_that_are_named_are_there(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / page).read_text()))
    paths = (path for room in ("tests", "lab/tests") for path in (ROOT / room).rglob("test_*.py"))
    there = {name for path in paths for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named <= there


def is_said(phrase: str) -> bool:
    return phrase in PLAIN


@pytest.mark.slow
def test_the_worked_example_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "-f", str(EXAMPLE), "--work", "30"]) == 0
    printed = re.sub(r" in [\d.]+ s\n", "", capsys.readouterr().out)
    assert printed.strip() in re.sub(r" in [\d.]+ s\n", "\n", TEXT)


@pytest.mark.slow
def test_the_worked_examples_numbers_are_those_of_solve_and_judge(problem: Problem) -> None:
    plan = solve(problem, SolveBudget(seconds=None, work=30))
    verdict: Verdict = judge(problem, plan)
    assert verdict.is_right
    assert verdict.cost.total == 1
    assert plan.certificate
    assert plan.certificate.bound == pytest.approx(1)
    photos, search = sorted(plan.instances, key=lambda instance: instance.service)
    standing = JudgedPlan(problem, plan)
    for instance, alone, exec_ms in ((photos, 20, 21), (search, 20, 24)):
        line = next(one for one in standing.residents if one.instance is instance)
        assert line.alone_ms == pytest.approx(alone)
        assert line.exec_ms == pytest.approx(exec_ms)
        slo_ms, judged = problem.services[instance.service].slo_ms, exec_ms * 1.05
        accepted = kernels.accepted_load(limits(95).loads[instance.batch], slo_ms / judged)
        load = instance.rate_per_second * judged / 1000 / instance.batch
        assert is_said(f"{instance.node}/{instance.gpu}, {instance.sm_percent}, {instance.batch}")
        assert is_said(f"{instance.rate_per_second:g} · {exec_ms / 1000:g} / {instance.batch} = {load / 1.05:.4g}")
        assert is_said(f"{slo_ms / judged:.4g}, {load:.4g}")
        assert is_said(f"{accepted:.4f}")
        assert is_said(f"{instance.latency_ms:.2f} of {slo_ms:g} ms")


def test_less_for_either_service_breaks_the_rule_that_is_said(problem: Problem) -> None:
    by_type = problem.profiles
    for model, sm, before, neighbour, rate, batch, told in (
        ("resnet", 59, 60, 0.25, 300, 8, 0.807), ("bert", 39, 40, 0.5, 130, 4, 0.819),
    ):  # fmt: skip
        profile = by_type[model, "fp16", "a10"]
        points, values = zip(*profile.latency_ms[batch], strict=True)
        slowed = 1 + profile.demand.most_sensitivity * neighbour
        loads = [rate * float(np.interp(at, points, values)) * slowed / 1000 / batch for at in (sm, before)]
        assert loads[0] == pytest.approx(told, abs=5e-4)
        assert loads[1] <= 0.8 < loads[0]


def test_the_prices_of_the_example_prove_its_cost(problem: Problem) -> None:
    t = tables(problem)
    assert t.services == ("shop/photos", "shop/search")
    prices = np.array([0.55 / 300, 0.45 / 130])
    assert bound_at(t, prices) == pytest.approx(1)
    seen = look_at(fleet(t), prices)
    dear, cheap = seen.worth  # no GPU is worth more than it costs
    assert dear <= 1 and cheap < 0.4
    assert seen.bound == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("value", "told"), [(200 / 300 * 0.55, 0.367), (0.8 * 4 / 0.03 / 130 * 0.45, 0.369)])
def test_the_cheap_gpu_is_worth_what_is_said(value: float, told: float) -> None:
    assert value == pytest.approx(told, abs=5e-4)


@pytest.mark.parametrize(
    ("batch", "ratio", "percentile", "told"),
    [(1, 2.0, 80, "0.5266"), (32, 1.95, 98, "0.020"), (32, 2.0, 98, "0.813"), (32, 2.25, 98, "0.905")],
)
def test_the_loads_of_the_table_are_those_quoted(batch: int, ratio: float, percentile: float, told: str) -> None:
    load = kernels.accepted_load(limits(percentile).loads[batch], ratio)
    assert f"{load:.{len(told) - 2}f}" == told
    assert is_said(told)


@pytest.mark.parametrize(
    "phrase",
    [
        f"Up to {finish.MOST_SIMULATED_INSTANCES} instances are simulated",
        f"Up to {scope.MOST_GPUS} GPUs and {scope.MOST_SERVICES} services",
        f"at most {every_placement.MOST_PLACEMENTS:,}",
        f"drifts {100 * replanner.DRIFT_SHARE:g} % above",
    ],
)
def test_constants_are_those_quoted(phrase: str) -> None:
    assert is_said(phrase)
