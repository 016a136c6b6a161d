"""OLTunes' experiments: loads of Table 7, declared accuracies, and claims that follow from results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.manifests.model import Kind
from lab.baselines.names import ORION
from lab.evaluate.claims import read_claims
from lab.evaluate.measured import EvaluationResult, EvaluationSample, run_evaluation
from lab.evaluate.oltunes.claims import oltunes_figures
from lab.evaluate.oltunes.experiments import EXPERIMENTS, PLANNERS, bursts, oltunes_runs, oltunes_shapes
from lab.evaluate.oltunes.pairs import CONV, IN_ORDER, IN_TURN, TOKEN, pair_figures, pairings, speedup
from lab.evaluate.verdicts import NO_FIGURE, YES, EvaluationClaim
from solvers.planners.names import JOINT, OLTUNES, RESERVE


def test_every_planner_runs_both_patterns_on_the_testbed() -> None:
    runs = oltunes_runs([0, 1])
    assert len(runs) == len(EXPERIMENTS) * len(PLANNERS) * 2
    for run in runs:
        gpus = [(node.spec["gpuType"], node.spec["gpus"]) for node in run.world.of(Kind.NODE)]
        assert sorted(gpus) == [("a100-pcie-40gb", 5), ("a30-24gb", 2), ("rtx-4090-24gb", 1)]
        services = {service.name: service.spec for service in run.world.of(Kind.SERVICE)}
        assert set(run.shapes) == {f"serving/{name}" for name in services}
        assert services["answer"]["meanAccuracy"] == pytest.approx(0.96 * 0.76)
        assert services["classify-small"]["ratePerSecond"] in (600.0, 300.0, 4800.0)


def test_bursts_are_seeded_and_rise_to_a_multiple() -> None:
    moments = [float(at) for at in range(300)]
    first, again, other = ([bursts(seed)(at) for at in moments] for seed in ("0 a", "0 a", "1 a"))
    assert first == again != other
    assert min(first) == 1.0
    assert 1.5 <= max(first) <= 3.0
    steady, uneven = (oltunes_shapes(experiment, 0) for experiment in EXPERIMENTS[:2])
    assert (
        max(steady["serving/answer"](at) for at in moments) < 1.1 < max(uneven["serving/answer"](at) for at in moments)
    )


@pytest.mark.slow
def test_a_run_measures_power_spread_accuracy_and_latency(database_url: str) -> None:
    run = next(run for run in oltunes_runs([0]) if (run.experiment, run.planner) == ("bursts", OLTUNES))
    found = run_evaluation(replace(run, seconds=150.0), database_url)
    assert found.requests > 1000
    assert 251 < found.power_w < 2000  # idle GPUs draw 251 W
    assert 0 < found.utilisation_spread_percent < 50
    assert 0 <= found.accuracy_loss_percent <= 4.1
    assert 1 < found.p99_ms < 2000
    assert {"p99Ms", "accuracyLossPercent", "powerW", "utilisationSpreadPercent"} <= set(found.figures())


def result(experiment: str, planner: str, seed: int, worse: float) -> EvaluationResult:
    sample = EvaluationSample(30.0, 90.0, 100.0 / worse, 0.0, 1.0, 1.0, 1.0, {}, {}, 0.5, 0.5, 3)
    return EvaluationResult(
        experiment,
        planner,
        seed,
        [sample],
        1000,
        int(10 * worse),
        0.9,
        {},
        50.0 * worse,
        2.0,
        300.0 * worse,
        5.0 * worse,
    )


def test_claims_follow_from_the_results() -> None:
    worse = {ORION: 16.0, RESERVE: 20.0, OLTUNES: 2.0, JOINT: 1.0}
    found = oltunes_figures(
        [
            result(experiment.name, planner, seed, factor)
            for experiment in EXPERIMENTS
            for planner, factor in worse.items()
            for seed in (0, 1)
        ]
    )
    claims = [
        EvaluationClaim(claim, found[claim.measures]) for claim in read_claims("oltunes") if claim.measures in found
    ]
    assert [claim.paper.row for claim in claims] == ["O6", "O7", "O7", "O7", "O7", "O7", "O9", "O9", "O9", "O9"]
    assert [claim.ratio(claim.values[JOINT]) for claim in claims] == [
        1.0,
        1.0,
        1.0,
        20.0,
        16.0,
        20.0,
        16.0,
        20.0,
        16.0,
        20.0,
    ]
    assert {claim.reaches(JOINT) for claim in claims} == {YES, NO_FIGURE}
    served = claims[-1]
    assert served.largest_ratio == pytest.approx(90.0 / 5.0)  # 90 requests a second came, 5 were served


@pytest.mark.slow
def test_pairs_take_the_printed_times() -> None:
    first, _ = pair_figures([0, 1])["pairs"].by_seed
    assert first[IN_TURN].value == 1.0
    assert first[OLTUNES].value == pytest.approx(1.9 / 1.3)
    assert 1.1 < first[IN_ORDER].value < first[OLTUNES].value
    assert speedup([CONV, CONV], pairings()[OLTUNES]) == pytest.approx(2.3 / 2.35)
    assert speedup([TOKEN, CONV], pairings()[JOINT]) == pytest.approx(1.9 / 1.3)
