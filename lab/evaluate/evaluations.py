"""The measurements of `gpuwright evaluate` for each system: its runs, the claims made of them, and their drawings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.output import say

if TYPE_CHECKING:
    from lab.evaluate.measured import EvaluationResult
    from lab.evaluate.verdicts import EvaluationClaim, MeasuredFigure


@dataclass(frozen=True, slots=True)
class SystemEvaluation:
    """The results of a system: its claims, its runs for the JSON, and their drawings."""

    claims: Sequence[EvaluationClaim]
    runs: Sequence[Mapping[str, Any]]
    draw: Callable[[Path], list[str]]

    def figures(self) -> dict[str, Any]:
        from lab.evaluate.verdicts import count_verdicts

        claims = [claim.figures() for claim in self.claims]
        return {"claims": claims, "counts": count_verdicts(claims), "runs": list(self.runs)}


def _hetsev(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.hetsev.claims import hetsev_figures
    from lab.evaluate.hetsev.experiments import hetsev_runs, hetsev_sustained
    from lab.evaluate.play import play

    alone = {"sustained": hetsev_sustained(seeds)}
    results = play(hetsev_runs(seeds), processes, say)
    return _evaluate_fleets("hetsev", {**alone, **hetsev_figures(results)}, results)


def _inss(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.inss.claims import inss_figures
    from lab.evaluate.inss.experiments import inss_runs
    from lab.evaluate.inss.plans import plan_figures
    from lab.evaluate.inss.tables import table_figures
    from lab.evaluate.play import play

    alone = {**table_figures(len(seeds)), **plan_figures(seeds)}
    results = play(inss_runs(seeds), processes, say)
    return _evaluate_fleets("inss", {**alone, **inss_figures(results)}, results)


def _morak(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.morak.claims import draw_morak, morak_figures
    from lab.evaluate.morak.experiments import measure_morak, morak_runs
    from lab.evaluate.play import play_without_databases
    from lab.evaluate.verdicts import judge_claims

    results = play_without_databases(morak_runs(seeds), measure_morak, processes, say)
    runs = [result.figures() for result in results]
    return SystemEvaluation(judge_claims("morak", morak_figures(results)), runs, partial(draw_morak, results))


def _mudi(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.mudi.batches import batch_figures
    from lab.evaluate.mudi.claims import mudi_figures
    from lab.evaluate.mudi.colocation import colocation_figures
    from lab.evaluate.mudi.decisions import decision_figures
    from lab.evaluate.mudi.experiments import mudi_runs, mudi_sustained
    from lab.evaluate.play import play

    results = play(mudi_runs(seeds), processes, say)
    say("M2, M4 and M5: co-locations, batches, and the SM% of 12 and of 1,000 GPUs")
    alone = {**colocation_figures(seeds), **batch_figures(seeds), **decision_figures(seeds)}
    alone["sustained"] = mudi_sustained(seeds)
    return _evaluate_fleets("mudi", {**alone, **mudi_figures(results)}, results)


def _oltunes(seeds: Sequence[int], processes: int) -> SystemEvaluation:
    from lab.evaluate.oltunes.claims import oltunes_figures
    from lab.evaluate.oltunes.experiments import oltunes_runs, oltunes_sustained
    from lab.evaluate.oltunes.learning import learning_figures
    from lab.evaluate.oltunes.pairs import pair_figures
    from lab.evaluate.play import play

    results = play(oltunes_runs(seeds), processes, say)
    alone = {**learning_figures(seeds), **pair_figures(seeds), "sustained": oltunes_sustained(seeds)}
    return _evaluate_fleets("oltunes", {**alone, **oltunes_figures(results)}, results)


def _evaluate_fleets(
    system: str, measured: Mapping[str, MeasuredFigure], results: Sequence[EvaluationResult]
) -> SystemEvaluation:
    from lab.evaluate.charts import draw_evaluation
    from lab.evaluate.verdicts import judge_claims

    runs = [result.figures() for result in results]
    return SystemEvaluation(judge_claims(system, measured), runs, partial(draw_evaluation, results))


MEASURES: Mapping[str, Callable[[Sequence[int], int], SystemEvaluation]] = {
    "hetsev": _hetsev,
    "mudi": _mudi,
    "inss": _inss,
    "morak": _morak,
    "oltunes": _oltunes,
}
