"""HetSev's experiments: their loads are the paper's, their runs repeat, and their claims follow from the samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.manifests.model import Kind
from lab.evaluate.hetsev.claims import hetsev_figures
from lab.evaluate.hetsev.experiments import EXPERIMENTS, PLANNERS, hetsev_runs, hetsev_shapes
from lab.evaluate.measured import EvaluationResult, EvaluationSample, run_evaluation
from lab.evaluate.play import play
from lab.evaluate.verdicts import NO, YES, judge_claims, measured_alike
from solvers.planners.names import HETSEV, HPA, HPA_CHEAPEST, JOINT

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
SERVICE = "serving/resnet50"


def test_production_goes_from_200_to_1000_requests_a_second() -> None:
    experiment = BY_NAME["production"]
    shapes = hetsev_shapes(experiment, 0)
    totals = [
        sum(rate * shapes[name](float(at)) for name, rate in experiment.rates.items())
        for at in range(int(experiment.seconds))
    ]
    assert min(totals) == pytest.approx(200, rel=0.1)
    assert max(totals) == pytest.approx(1000, rel=0.12)  # with noise of 2 %
    assert experiment.rates[SERVICE] == pytest.approx(0.6 * sum(experiment.rates.values()))


def test_spikes_of_the_cost_experiment_are_distinct_and_seeded() -> None:
    experiment = BY_NAME["cost"]
    first, again, other = (hetsev_shapes(experiment, seed) for seed in (0, 0, 1))
    moments = [10.0 * number for number in range(300)]
    loads = [[[shapes[name](at) for at in moments] for name in experiment.rates] for shapes in (first, again, other)]
    assert loads[0] == loads[1] != loads[2]
    begins = {name: next(at for at in moments if first[name](at) > 2.0) for name in experiment.rates}
    assert len(set(begins.values())) == len(begins)


def test_every_planner_runs_every_experiment_on_the_testbed() -> None:
    runs = hetsev_runs([0, 1])
    assert len(runs) == len(EXPERIMENTS) * len(PLANNERS) * 2
    assert set(PLANNERS) == {JOINT, HETSEV, HPA, HPA_CHEAPEST}
    for run in runs:
        gpus = [(node.spec["gpuType"], node.spec["gpus"]) for node in run.world.of(Kind.NODE)]
        assert sorted(gpus) == [("t4-16gb", 2)] * 4 + [("v100-sxm2-32gb", 2)] * 4
        declared = {f"{service.tenant}/{service.name}" for service in run.world.of(Kind.SERVICE)}
        assert declared == set(run.shapes)


@pytest.mark.slow
def test_a_run_repeats_itself_in_any_process(database_url: str) -> None:
    runs = [run for run in hetsev_runs([0]) if run.experiment == "production" and run.planner in (HPA, HETSEV)]
    runs = [replace(run, seconds=240.0) for run in runs]
    told: list[str] = []
    found = play(runs, 2, told.append)
    assert [(result.planner, len(result.samples)) for result in found] == [(HPA, 4), (HETSEV, 4)]
    assert found[0] == run_evaluation(runs[0], database_url)
    assert len(told) == 2
    for result in found:
        assert result.requests > 200 * 100
        assert 0 <= result.violations_percent < 5
        for sample in result.samples:
            assert 0 < sample.utilisation <= sample.used_utilisation <= 1
            assert sample.used_memory_per_hour < sample.whole_memory_per_hour
            assert sum(sample.used_memory_by_service.values()) == pytest.approx(sample.used_memory_per_hour)


def sample(at: float, price: float, within: float, **fields: float) -> EvaluationSample:
    bills: Mapping[str, float] = {"a": price, "b": 2 * price}
    return EvaluationSample(
        at, 90.0, within, fields.get("missed", 0.0), price, 3 * price, 3 * price, bills, bills,
        fields.get("use", 0.5), 0.6, 3,
    )  # fmt: skip


def results(experiment: str, seed: int) -> list[EvaluationResult]:
    """Kubernetes pays four times ours; in the last of six samples it serves a third."""
    found = []
    for planner, price in ((HPA, 4.0), ("hpa-cheapest", 2.0), (HETSEV, 1.5), (JOINT, 1.0)):
        withins = [90.0] * 5 + [30.0 if planner == HPA else 90.0]
        samples = [sample(30.0 * at, price, within) for at, within in enumerate(withins)]
        found.append(EvaluationResult(experiment, planner, seed, samples, 1000, 20 if planner == HPA else 5))
    return found


def test_claims_follow_from_the_samples() -> None:
    everything = [result for name in BY_NAME for seed in (0, 1) for result in results(name, seed)]
    sustained = measured_alike([{HPA: 1.0, HPA_CHEAPEST: 1.0, HETSEV: 1.5, JOINT: 2.3}] * 2)
    claims = judge_claims("hetsev", {**hetsev_figures(everything), "sustained": sustained})
    found = {claim.paper.measures: claim for claim in claims}
    missed, served = found["late"], found["served when saturated"]
    assert {claim.paper.row for claim in claims} == {"H4", "H5"}
    assert (missed.values[HPA], missed.values[JOINT], missed.reaches(JOINT)) == (2.0, 0.5, YES)
    assert missed.ours_is_best == NO  # HetSev misses as few
    most = found["bill that differs most"]
    assert (most.ratio(most.values[JOINT]), most.values[HETSEV]) == (4.0, 1.5)
    assert found["mean bill"].values == {HPA: 1.0, "hpa-cheapest": 0.5, HETSEV: 0.375, JOINT: 0.25}
    assert found["held"].ours_is_best == YES  # it costs least, and none misses fewer requests
    assert served.values[HPA] == 75.0  # of its worst 120 s
    assert served.ratio(served.values[JOINT]) == pytest.approx(1.2)
    assert served.largest_ratio == pytest.approx(90 / 75)
    assert found["sustained"].reaches(JOINT) == YES
