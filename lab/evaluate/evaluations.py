"""The measurements of `gpuwright evaluate` for each system: its runs, the claims made of them, and their drawings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.output import say

if TYPE_CHECKING:
    from lab.evaluate.claims import EvaluationClaim
    from lab.evaluate.measured import EvaluationResult


@dataclass(frozen=True, slots=True)
class SystemEvaluation:
    """The results of a system: its claims, its runs for the JSON, and their drawings."""

    claims: Sequence[EvaluationClaim]
    runs: Sequence[Mapping[str, Any]]
    draw: Callable[[Path], list[str]]

    def figures(self) -> dict[str, Any]:
        return {"claims": [claim.figures() for claim in self.claims], "runs": list(self.runs)}


def _hetsev(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.hetsev.claims import hetsev_claims
    from lab.evaluate.hetsev.experiments import hetsev_runs
    from lab.evaluate.play import play

    results = play(hetsev_runs(seeds), processes, say)
    return _evaluate_fleets(hetsev_claims(results), results)


def _inss(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.inss.claims import inss_claims
    from lab.evaluate.inss.experiments import inss_runs
    from lab.evaluate.inss.plans import plan_figures
    from lab.evaluate.play import play

    plans = plan_figures(seeds)
    results = play(inss_runs(seeds), processes, say)
    return _evaluate_fleets(inss_claims(results, plans), results)


def _morak(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.morak.claims import draw_morak, morak_claims
    from lab.evaluate.morak.experiments import measure_morak, morak_runs
    from lab.evaluate.play import play_without_databases

    results = play_without_databases(morak_runs(seeds), measure_morak, processes, say)
    runs = [result.figures() for result in results]
    return SystemEvaluation(morak_claims(results), runs, partial(draw_morak, results))


def _mudi(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.mudi.batches import batch_claims
    from lab.evaluate.mudi.claims import mudi_claims
    from lab.evaluate.mudi.colocation import colocation_claims
    from lab.evaluate.mudi.decisions import decision_claims
    from lab.evaluate.mudi.experiments import mudi_runs
    from lab.evaluate.play import play

    results = play(mudi_runs(seeds), processes, say)
    say("M2, M4 and M5: co-locations, batches, and the SM% of 12 and of 1,000 GPUs")
    alone = [*colocation_claims(seeds), *batch_claims(seeds), *decision_claims(seeds)]
    return _evaluate_fleets([*alone, *mudi_claims(results)], results)


def _oltunes(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.oltunes.claims import oltunes_claims
    from lab.evaluate.oltunes.experiments import oltunes_runs
    from lab.evaluate.oltunes.learning import learning_claims
    from lab.evaluate.oltunes.pairs import pair_claims
    from lab.evaluate.play import play

    results = play(oltunes_runs(seeds), processes, say)
    return _evaluate_fleets([*learning_claims(seeds), *pair_claims(seeds), *oltunes_claims(results)], results)


def _evaluate_fleets(claims: Sequence[EvaluationClaim], results: Sequence[EvaluationResult]) -> SystemEvaluation:
    from lab.evaluate.charts import draw_evaluation

    return SystemEvaluation(claims, [result.figures() for result in results], partial(draw_evaluation, results))


MEASURES: Mapping[str, Callable[[Sequence[int], int], SystemEvaluation]] = {
    "hetsev": _hetsev,
    "mudi": _mudi,
    "inss": _inss,
    "morak": _morak,
    "oltunes": _oltunes,
}
