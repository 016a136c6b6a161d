"""Mudi's experiments: trainings are drawn by their shares, each planner gets the same ones, and claims follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import pytest

from app.manifests.model import Kind
from lab.baselines.names import GPULET, GSLICE
from lab.evaluate import testbeds
from lab.evaluate.claims import read_claims
from lab.evaluate.measured import EvaluationResult, EvaluationSample, run_evaluation
from lab.evaluate.mudi.batches import (
    CLOSE_SHARE,
    COPIES,
    MOST_BATCH,
    RANDOM,
    NoisyCopy,
    TunedCopy,
    needed_measurements,
    tuned_copies,
)
from lab.evaluate.mudi.claims import mudi_figures
from lab.evaluate.mudi.colocation import (
    CHANCE,
    WITHOUT_LAYERS,
    ColocationWorld,
    colocation_figures,
    colocation_world,
    is_right,
    predict_by_layers,
    predict_by_mean,
    predict_by_pressure,
)
from lab.evaluate.mudi.decisions import PROBLEM_A_GPU, cluster_rounds, decision_ms
from lab.evaluate.mudi.experiments import (
    CLUSTER,
    FIRST_TRAININGS,
    PLANNERS,
    RATES,
    SECONDS,
    SHORTENED,
    later_trainings,
    mudi_runs,
    mudi_shapes,
    mudi_world,
)
from lab.evaluate.verdicts import NO, YES, EvaluationClaim
from solvers.latency import latency_at
from solvers.planners.names import JOINT, MUDI, RESERVE


@pytest.mark.slow
def test_every_planner_gets_the_same_services_and_trainings_on_twelve_gpus() -> None:
    runs = mudi_runs([0, 1])
    assert len(runs) == len(PLANNERS) * 2
    for run in runs:
        assert [node.spec["gpus"] for node in run.world.of(Kind.NODE)] == [4, 4, 4]
        declared = {f"{service.tenant}/{service.name}": service.spec for service in run.world.of(Kind.SERVICE)}
        assert {name: spec["ratePerSecond"] for name, spec in declared.items()} == RATES
        trainings = [job.name for job in run.world.of(Kind.JOB)]
        assert len(trainings) == FIRST_TRAININGS
        assert run.arrivals == later_trainings(run.seed)
        moments = [arrival.at_seconds for arrival in run.arrivals]
        assert moments == sorted(moments)
        assert 0 < moments[0] < moments[-1] < SECONDS
        assert not {arrival.job.name for arrival in run.arrivals} & set(trainings)
    assert later_trainings(0) != later_trainings(1)


@pytest.mark.slow
def test_trainings_are_shortened_and_drawn_by_their_shares() -> None:
    tasks = {task.name: task for task in testbeds.testbed("mudi", {}).of(Kind.JOB)}
    drawn = Counter[str]()
    for seed in range(100):
        for job in [*mudi_world(seed).of(Kind.JOB), *(arrival.job for arrival in later_trainings(seed))]:
            name = job.name.rsplit("-", 1)[0]
            drawn[name] += 1
            assert float(str(job.spec["steps"])) == pytest.approx(
                float(str(tasks[name].spec["steps"])) / SHORTENED, abs=1
            )
    whole = sum(float(task.labels["share"]) for task in tasks.values())
    for name, task in tasks.items():
        assert drawn[name] / drawn.total() == pytest.approx(float(task.labels["share"]) / whole, abs=0.03)


def test_loads_move_by_a_fifth_and_are_seeded() -> None:
    first, again, other = (mudi_shapes(seed) for seed in (0, 0, 1))
    for name in first:
        values = [[shapes[name](float(at)) for at in range(0, 600, 10)] for shapes in (first, again, other)]
        assert values[0] == values[1] != values[2]
        assert 0.7 < min(values[0]) < max(values[0]) < 1.3


@pytest.mark.slow
def test_a_run_counts_the_trainings_that_are_done(database_url: str) -> None:
    run = next(run for run in mudi_runs([0]) if (run.experiment, run.planner) == (CLUSTER, GSLICE))
    came = sum(arrival.at_seconds < 200 for arrival in run.arrivals)
    assert came
    found = run_evaluation(replace(run, seconds=200.0, from_seconds=60.0), database_url)
    assert 0 < found.jobs_done < FIRST_TRAININGS + came
    assert 0 < found.completion_seconds < 200
    assert found.figures()["jobsDone"] == found.jobs_done
    assert 0 < found.mean("utilisation") < found.sms_at_work_percent / 100 <= 1


def result(planner: str, late: int, seconds: float) -> EvaluationResult:
    bills: Mapping[str, float] = {"a": 1.0}
    sample = EvaluationSample(150.0, 90.0, 80.0, 0.0, 1.0, 1.0, 1.0, bills, bills, 0.5, 0.6, 3)
    found = EvaluationResult(CLUSTER, planner, 0, [sample], 1000, late)
    found.completion_seconds, found.sms_at_work_percent = seconds, 5000 / seconds
    return found


def test_claims_follow_from_the_results() -> None:
    values = {GSLICE: (25, 300.0), GPULET: (30, 280.0), RESERVE: (9, 400.0), MUDI: (6, 150.0), JOINT: (4, 100.0)}
    found = mudi_figures([result(planner, *own) for planner, own in values.items()])
    claims = {claim.metric: claim for claim in read_claims("mudi") if claim.measures in found}
    assert len(claims) == 4
    judged = {metric: EvaluationClaim(claim, found[claim.measures]) for metric, claim in claims.items()}
    assert {claim.reaches(JOINT) for claim in judged.values()} == {YES}
    fewer = judged["SLO violations, %, GSLICE to ours"]
    assert fewer.ratio(fewer.values[JOINT]) == pytest.approx(6.25)
    assert fewer.reaches(MUDI) == NO


@pytest.mark.slow
def test_three_ways_find_the_same_shares_and_each_is_timed() -> None:
    found = decision_ms(cluster_rounds(5, 0))
    assert set(found) == {PROBLEM_A_GPU, MUDI, JOINT}
    assert min(found.values()) > 0


def test_the_instances_of_a_cluster_stay_while_what_presses_on_them_changes() -> None:
    first, second, *_ = cluster_rounds(12, 0)
    assert [gpu.residents for gpu in first] == [gpu.residents for gpu in second]
    assert [gpu.other_pressure for gpu in first] != [gpu.other_pressure for gpu in second]
    assert len({gpu.residents[0].rate_per_second for gpu in first}) == 12


def busiest(seed: int) -> TunedCopy:
    return max(tuned_copies(seed, COPIES), key=lambda copy: copy.rate_per_second)


@pytest.mark.slow
def test_what_a_noisy_copy_measures_is_near_the_exact_queue() -> None:
    copy = busiest(0)
    for batch in (min(copy.kept_step_ms), max(copy.kept_step_ms)):
        exec_ms, step_ms = copy.times_ms[batch]
        exact_ms = latency_at(batch, exec_ms, copy.rate_per_second, copy.service.percentile)
        found = [NoisyCopy(copy, str(number)).measure(batch) for number in range(20)]
        assert len({trial.latency_ms for trial in found}) > 1
        assert fmean(trial.latency_ms for trial in found) == pytest.approx(exact_ms, rel=0.1)
        assert fmean(trial.iteration_ms for trial in found) == pytest.approx(step_ms, rel=0.05)


@pytest.mark.slow
def test_a_batch_is_close_if_it_keeps_the_slo_and_trains_nearly_as_fast_as_the_best() -> None:
    copy = busiest(1)
    best = min(copy.kept_step_ms, key=lambda batch: copy.kept_step_ms[batch])
    assert copy.is_close(best)
    assert not copy.is_close(None)
    late = [batch for batch in copy.times_ms if batch not in copy.kept_step_ms]
    slow = [
        batch for batch, step_ms in copy.kept_step_ms.items() if step_ms > (1 + CLOSE_SHARE) * copy.kept_step_ms[best]
    ]
    assert late
    assert slow
    assert not any(copy.is_close(batch) for batch in [*late, *slow])
    assert max(copy.times_ms) <= MOST_BATCH


@pytest.mark.slow
def test_the_search_needs_fewer_measurements_than_random_batches() -> None:
    needed, again = (needed_measurements(tuned_copies(0, 8), 0) for _ in range(2))
    assert needed[JOINT] < needed[RANDOM]
    assert needed == again


@pytest.mark.slow
def test_a_training_that_is_left_out_tells_nothing_of_itself_but_its_layers() -> None:
    world = colocation_world(0, 0)
    training = sorted(world.layers)[0]
    others = {pair: value for pair, value in world.measured.items() if pair[1] != training}
    hidden = {pair: 99.0 for pair in world.measured if pair[1] == training}
    blind = replace(world, measured={**others, **hidden})
    for predict in (predict_by_mean, predict_by_layers, predict_by_pressure):
        assert predict(world, training) == predict(blind, training)
    relabelled = replace(world, layers={**world.layers, training: {"lstm": 40}})
    assert predict_by_layers(relabelled, training) != predict_by_layers(world, training)
    assert predict_by_mean(relabelled, training) == predict_by_mean(world, training)


def test_a_choice_is_right_if_its_service_is_hardly_slowed_more_than_the_best() -> None:
    true = {("a", "t"): 1.1, ("b", "t"): 1.105, ("c", "t"): 1.3}
    world = ColocationWorld(("a", "b", "c"), {"t": {"conv": 1}}, true, true)
    assert is_right(world, "t", {"a": 1.0, "b": 2.0, "c": 3.0})
    assert is_right(world, "t", {"a": 2.0, "b": 1.0, "c": 3.0})
    assert not is_right(world, "t", {"a": 2.0, "b": 3.0, "c": 1.0})


@pytest.mark.slow
def test_colocations_chosen_by_layers_are_better_than_chance() -> None:
    (found,) = colocation_figures([0])["co-locations"].by_seed
    percents = {name: measured.value for name, measured in found.items()}
    assert set(percents) == {WITHOUT_LAYERS, CHANCE, MUDI, JOINT}
    assert percents[CHANCE] < min(percents[MUDI], percents[JOINT]) <= 100
