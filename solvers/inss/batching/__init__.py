"""Finds the batches of highest throughput within every SLO for the models of one GPU at given SM% (InSS, I4)."""

from __future__ import annotations

from solvers.inss.batching.answer import Batches, NoBatches, Outcome
from solvers.inss.batching.bda import bda
from solvers.inss.batching.exact import highest_throughput
from solvers.inss.batching.explain import no_batches
from solvers.inss.batching.judge import throughput_per_second, violations
from solvers.inss.batching.problem import BatchedModel, BatchingProblem, BatchOption, WrongBatching
from solvers.proof import Proof, SolverBug, above, must_be_right

__all__ = [
    "BatchOption",
    "BatchedModel",
    "Batches",
    "BatchingProblem",
    "NoBatches",
    "Outcome",
    "WrongBatching",
    "decide_batches",
]


def decide_batches(problem: BatchingProblem, work_limit: int = 200_000) -> Outcome:
    """Returns BDA's answer with the bound of the exact one, or the exact answer if it serves more."""
    claim = highest_throughput(problem, work_limit)
    answers = []
    decided = bda(problem)
    if decided.flag:
        answers.append((decided.batches, "BDA"))
    if claim.batches is not None:
        answers.append((claim.batches, "exact"))
    for batches, method in answers:
        must_be_right(method, violations(problem, batches))
    if answers and claim.bound_per_second is None:
        raise SolverBug(f"the exact solver proves that there are no valid batches; {answers[0][1]} found some")
    if not answers or claim.bound_per_second is None:
        return no_batches(problem, is_proved=claim.bound_per_second is None, work=claim.work)
    batches, method = max(answers, key=lambda answer: throughput_per_second(problem, answer[0]))  # BDA's of equals
    served = throughput_per_second(problem, batches)
    return Batches(batches, Proof(served, above(claim.bound_per_second, served, method), method, claim.work))
