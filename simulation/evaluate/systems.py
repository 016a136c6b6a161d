"""The systems that can be evaluated: the runs of each, and the claims that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simulation.evaluate.claims import EvaluationClaim
from simulation.evaluate.hetsev import hetsev_runs
from simulation.evaluate.hetsev_claims import hetsev_claims
from simulation.evaluate.measured import EvaluationResult, EvaluationRun
from simulation.evaluate.oltunes import oltunes_runs
from simulation.evaluate.oltunes_claims import oltunes_claims
from simulation.evaluate.oltunes_learning import learning_claims
from simulation.evaluate.oltunes_pairs import pair_claims


@dataclass(frozen=True, slots=True)
class EvaluatedSystem:
    """A paper's experiments: its runs by seeds, and the claims made from their results and the seeds."""

    runs: Callable[[Sequence[int]], list[EvaluationRun]]
    claims: Callable[[Sequence[EvaluationResult], Sequence[int]], list[EvaluationClaim]]


EVALUATED: Mapping[str, EvaluatedSystem] = {
    "hetsev": EvaluatedSystem(hetsev_runs, lambda results, seeds: hetsev_claims(results)),
    "oltunes": EvaluatedSystem(
        oltunes_runs,
        lambda results, seeds: [*learning_claims(seeds), *pair_claims(seeds), *oltunes_claims(results)],
    ),
}
