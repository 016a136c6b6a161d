"""InSS's experiments: loads ask for what they should, figures of plans keep their definitions, claims follow."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.manifests.model import Kind
from lab.baselines.names import GPULET, GSLICE, IGNITER
from lab.evaluate.inss.claims import inss_figures
from lab.evaluate.inss.experiments import EXPERIMENTS, HEAVY, PLANNED, PLANNERS, RATES, inss_runs, inss_shapes
from lab.evaluate.inss.plans import (
    GSLICE_LARGEST_FIRST,
    IGNITER_ON_THREE,
    back_to_back,
    declared_problem,
    leave_out_node,
)
from lab.evaluate.inss.tables import TABLE, TABLE_2, TABLE_3, errors, table_figures, worst_errors
from lab.evaluate.measured import EvaluationResult, EvaluationSample
from lab.evaluate.sustained import sustained_figure, sustained_rates
from lab.evaluate.verdicts import NO_FIGURE, OUT_OF_REACH, YES, judge_claims, measured_alike
from solvers.planners.names import INSS, JOINT


def test_every_planner_runs_every_experiment_on_the_testbed() -> None:
    runs = inss_runs([0, 1])
    assert len(runs) == len(EXPERIMENTS) * len(PLANNERS) * 2
    for run in runs:
        gpus = [(node.spec["gpuType"], node.spec["gpus"]) for node in run.world.of(Kind.NODE)]
        assert sorted(gpus) == [("rtx-2060-6gb", 1), ("rtx-2060-6gb", 1), ("rtx-2060-super-8gb", 2)]
        declared = {f"{service.tenant}/{service.name}": service.spec for service in run.world.of(Kind.SERVICE)}
        assert set(declared) == set(run.shapes)
        times = next(known.times for known in EXPERIMENTS if known.name == run.experiment)
        assert all(spec["ratePerSecond"] == RATES[name] * times for name, spec in declared.items())
    assert {len(run.shapes) for run in runs if run.experiment == HEAVY} == {8}


def test_loads_move_by_a_fifth_and_are_seeded() -> None:
    first, again, other = (inss_shapes(EXPERIMENTS[0], seed) for seed in (0, 0, 1))
    for name in first:
        values = [[shapes[name](float(at)) for at in range(0, 600, 10)] for shapes in (first, again, other)]
        assert values[0] == values[1] != values[2]
        assert min(values[0]) > 0.7
        assert max(values[0]) < 1.3


def test_times_between_others_are_predicted_without_them() -> None:
    beside = TABLE_3[-1]
    assert beside.varies == "neighbour"
    assert errors(beside, TABLE)[0] == pytest.approx(100 * abs((15.515 + (16.958 - 15.515) / 2) / 16.170 - 1))
    assert max(errors(beside, INSS)) < 1  # interference is nearly linear in a neighbour's SM%
    worst = worst_errors(TABLE_2)
    assert set(worst) == {INSS, TABLE, JOINT}
    assert all(0 < error < 30 for error in worst.values())


@pytest.mark.slow
def test_plans_sustain_a_load_at_which_every_service_gets_its_rate() -> None:
    throughput = back_to_back(0)
    (found,) = sustained_figure({0: declared_problem(PLANNED)}, PLANNERS).by_seed
    most = {planner: measured.value for planner, measured in found.items()}
    declared = sum(list(RATES.values())[:6])
    for planner in PLANNERS:
        assert throughput[planner] > declared  # back to back, without any wait
        assert most[planner] * 16 % declared == pytest.approx(0)
    assert most[JOINT] >= most[INSS] > most[GPULET] > 0
    three = leave_out_node(declared_problem(PLANNED))
    assert sum(len(node.gpus) for node in three.nodes.values()) == 3
    assert 0 < sustained_rates(three, (IGNITER,), 0)[IGNITER] <= most[IGNITER]


def result(planner: str, experiment: str, within: float, violations: int) -> EvaluationResult:
    bills: Mapping[str, float] = {"a": 1.0}
    sample = EvaluationSample(150.0, 90.0, within, 0.0, 1.0, 1.0, 1.0, bills, bills, 0.5, 0.6, 3)
    return EvaluationResult(experiment, planner, 0, [sample], 1000, violations)


@pytest.mark.slow
def test_claims_follow_from_samples_and_plans() -> None:
    served = {GPULET: 50.0, GSLICE: 45.0, IGNITER: 30.0, INSS: 70.0, JOINT: 90.0}
    results = [
        result(planner, experiment.name, within, 5 if planner == JOINT else 40)
        for experiment in EXPERIMENTS
        for planner, within in served.items()
    ]
    plans = dict.fromkeys(
        ("back to back", "sustained six", "sustained eight"),
        measured_alike([served | {IGNITER_ON_THREE: 25.0, GSLICE_LARGEST_FIRST: 20.0}]),
    )
    claims = judge_claims("inss", {**table_figures(1), **plans, **inss_figures(results)})
    assert [claim.paper.row for claim in claims] == ["I1", "I1", "I5", *["I6"] * 12, "I6"]
    _, _, sac_d, violated, *over = claims
    assert sac_d.reaches(JOINT) == NO_FIGURE
    assert "the paper's machine" in sac_d.paper.because
    assert (violated.values[JOINT], violated.reaches(JOINT)) == (0.5, YES)
    assert [claim.ratio(claim.values[JOINT]) for claim in over[:3]] == [1.8, 2.0, 3.0]
    assert [claim.reaches(JOINT) for claim in over[:6]] == [YES] * 6
    # 90 requests a second came: nobody could have served 2.9 times what gpulet did
    assert over[6].reaches(JOINT) == YES
    assert over[6].largest_ratio == 1.8 < 2.9
    assert {claim.reaches(JOINT) for claim in over} <= {YES, OUT_OF_REACH}
