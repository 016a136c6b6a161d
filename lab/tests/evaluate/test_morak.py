"""Morak's experiments: the truth has the printed figures, the laws are the paper's, and claims follow from results."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from agents.policy.power.settings import PowerSettings
from lab.evaluate.morak.claims import draw_morak, morak_figures
from lab.evaluate.morak.experiments import (
    ENERGY_MS,
    NETWORKS,
    PLANNERS,
    THROUGHPUT_MS,
    MorakResult,
    MorakRun,
    measure_morak,
    morak_runs,
    saturated_problem,
)
from lab.evaluate.morak.laws import BATCH_DVFS, CLIPPER_L, CLIPPER_P, DFS, METHODS, NodeMethod, clipper_l
from lab.evaluate.saturated import SaturatedGpu, SaturatedPeriod
from lab.evaluate.verdicts import NO, NO_FIGURE, YES, judge_claims
from lab.power import printed
from solvers.planners.names import JOINT, MORAK
from solvers.planning.problem import Instance

SERVICE = "serving/googlenet"


def gpu(copies: int, batch: int, sm_percent: int, method: NodeMethod | None = None) -> SaturatedGpu:
    problem = saturated_problem("googlenet", THROUGHPUT_MS)
    kind = problem.type_of("server-1")
    profile = problem.profile(SERVICE, "fp32", "server-1")
    assert profile
    seats = [
        Instance(str(n), SERVICE, "server-1", 0, "fp32", batch, 0, sm_percent, 0, kind.top_clock_mhz, 0)
        for n in range(copies)
    ]
    method = method or NodeMethod(clipper_l, batch)
    return SaturatedGpu(kind, seats, {SERVICE: profile}, {SERVICE: THROUGHPUT_MS}, method, Random(0))


def steady(found: SaturatedGpu, seconds: int = 300) -> list[SaturatedPeriod]:
    return [found.period(PowerSettings()) for _ in range(seconds)][seconds // 2 :]


@pytest.mark.parametrize(
    ("copies", "batch", "sm_percent", "requests", "exec_ms", "watts"),
    [(1, 64, 100, 1600, 38.4, 152), (4, 16, 25, 1860, 35.2, 156)],  # section III-C
)
def test_googlenet_has_the_two_printed_settings(
    copies: int, batch: int, sm_percent: int, requests: float, exec_ms: float, watts: float
) -> None:
    found = gpu(copies, batch, sm_percent).period(PowerSettings())
    assert found.requests == pytest.approx(requests, rel=0.03)
    assert max(found.times_ms.values()) == pytest.approx(exec_ms, rel=0.03)
    assert found.watts == pytest.approx(watts, rel=0.01)


def test_clipper_l_finds_the_largest_batch_within_the_latency_and_ignores_the_cap() -> None:
    found = steady(gpu(1, 1, 100, METHODS[CLIPPER_L]))
    times = [max(period.times_ms.values()) for period in found]
    assert 85 < min(times) < 100 < max(times) < 106
    assert all(period.watts > 150 for period in found)


def test_clipper_p_keeps_the_cap_on_average_by_its_batch_alone() -> None:
    found = steady(gpu(1, 1, 100, METHODS[CLIPPER_P]))
    assert sum(period.watts for period in found) / len(found) < 150
    assert {period.clock_mhz for period in found} == {1545}


@pytest.mark.parametrize("name", [DFS, BATCH_DVFS])
def test_methods_with_a_clock_keep_the_cap_on_average(name: str) -> None:
    found = steady(gpu(1, METHODS[name].batch or 1, 100, METHODS[name]))
    assert sum(period.watts for period in found) / len(found) < 150
    assert len({period.clock_mhz for period in found}) == 2  # it goes to and fro between two of five clocks


def test_algorithm_1_grows_a_batch_by_the_stated_step() -> None:
    found = gpu(4, 1, 25, NodeMethod(partial(printed.step, growth=1.5), 4, starts_slow=True))
    found.period(PowerSettings())
    assert set(found.batches.values()) == {6}
    assert found.clock_mhz == 600


def test_every_method_runs_every_network_at_both_limits() -> None:
    runs = morak_runs([0, 1])
    assert len(runs) == len(set(runs)) == len(NETWORKS) * 2 * len(PLANNERS) * 2
    assert set(PLANNERS) == {*METHODS, MORAK, JOINT}


@pytest.mark.slow
def test_morak_splits_gpus_serves_more_than_whole_ones_and_a_run_repeats_itself() -> None:
    run = MorakRun("googlenet", THROUGHPUT_MS, MORAK, 0)
    found, clipper = measure_morak(run), measure_morak(replace(run, planner=CLIPPER_L))
    assert found == measure_morak(run)
    assert found.instances > 4 == clipper.instances
    assert found.requests_per_second > clipper.requests_per_second
    assert found.over_cap_percent < clipper.over_cap_percent == 100


def results() -> list[MorakResult]:
    """The joint planner serves twice as much as each baseline at half the energy; the paper's half as much more."""
    shares = dict.fromkeys(METHODS, 1.0) | {MORAK: 1.5, JOINT: 2.0}
    return [
        MorakResult(
            f"{limit:g} ms", network, limit, planner, seed, 100 * share, share, 100.0, 1 / share,
            100.0 if planner == CLIPPER_L else 0.0, 100.0 if planner == DFS else 0.0, 50.0, 1545.0, 4,
        )
        for limit in (THROUGHPUT_MS, ENERGY_MS)
        for network in NETWORKS
        for planner, share in shares.items()
        for seed in (0, 1)
    ]  # fmt: skip


def test_claims_follow_from_the_results() -> None:
    claims = judge_claims("morak", morak_figures(results()))
    assert {claim.paper.row for claim in claims} == {"K5"}
    assert [claim.ratio(claim.values[JOINT]) for claim in claims[:8]] == [2.0] * 8
    reached = [claim.reaches(JOINT) for claim in claims]
    assert reached == [*[NO_FIGURE] * 4, YES, YES, NO, YES, YES, YES]
    assert [claim.ours_is_best for claim in claims] == [YES] * 8 + [NO] * 2  # Morak keeps both limits, too
    assert claims[8].values[CLIPPER_L] == claims[9].values[DFS] == 100
    assert [claim.paper.truth for claim in claims].count("printed") == 1


@pytest.mark.slow
def test_drawings_and_figures_have_every_method(tmp_path: Path) -> None:
    assert draw_morak(results(), tmp_path) == ["throughput", "energy"]
    drawing = (tmp_path / "throughput.svg").read_text()
    assert all(planner in drawing for planner in PLANNERS)
    assert results()[0].figures() | {"wholeGpuShare": 1.0, "joulesPerRequest": 1.0} == results()[0].figures()
