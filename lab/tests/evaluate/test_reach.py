"""No claim is out of every planner's reach: what comes in a run is enough for the paper's ratio to its baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from lab.evaluate.claims import TIMES, read_claims
from lab.evaluate.hetsev.claims import hetsev_figures
from lab.evaluate.hetsev.experiments import hetsev_runs
from lab.evaluate.inss.claims import inss_figures
from lab.evaluate.inss.experiments import inss_runs
from lab.evaluate.measured import EvaluationResult, EvaluationRun
from lab.evaluate.mudi.claims import mudi_figures
from lab.evaluate.mudi.experiments import mudi_runs
from lab.evaluate.oltunes.claims import oltunes_figures
from lab.evaluate.oltunes.experiments import oltunes_runs
from lab.evaluate.play import play
from lab.evaluate.verdicts import EvaluationClaim, MeasuredFigure
from solvers.planners.names import JOINT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MakeRuns = Callable[[Sequence[int]], list[EvaluationRun]]
ReadFigures = Callable[[Sequence[EvaluationResult]], dict[str, MeasuredFigure]]
# The experiments in which a claim is about more, their seconds, and how figures are read.
RAISED: Mapping[str, tuple[MakeRuns, ReadFigures, Mapping[str, float]]] = {
    "hetsev": (hetsev_runs, hetsev_figures, {"saturated": 800.0}),
    "mudi": (mudi_runs, mudi_figures, {"cluster": 1200.0}),
    "inss": (inss_runs, inss_figures, {"saturated": 200.0, "heavy": 200.0}),
    "oltunes": (oltunes_runs, oltunes_figures, {"raised bursts": 180.0}),
}


def play_baselines(system: str) -> list[EvaluationResult]:
    """Runs the baselines of claims about more, in short; each stands for the joint planner, too."""
    make_runs, _, seconds = RAISED[system]
    baselines = {name for claim in read_claims(system) if claim.is_more_better for name in claim.baselines}
    runs = [
        replace(run, seconds=seconds[run.experiment])
        for run in make_runs([0])
        if run.experiment in seconds and run.planner in baselines
    ]
    results = play(runs, 2, print)
    return [*results, *(replace(result, planner=JOINT) for result in results)]


@pytest.mark.parametrize("system", RAISED)
def test_what_comes_is_enough_for_the_papers_ratio(system: str) -> None:
    figures = RAISED[system][1](play_baselines(system))
    claims = [
        EvaluationClaim(claim, figures[claim.measures])
        for claim in read_claims(system)
        if claim.rule == TIMES and claim.is_more_better and claim.measures in figures
    ]
    assert claims
    for claim in claims:
        assert claim.largest_ratio >= claim.paper.figure, claim.paper.metric
