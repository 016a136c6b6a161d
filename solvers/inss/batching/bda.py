"""InSS's batch decision algorithm: a binary search of each model's batch, model after model.

Its text and its printed listing differ. The text: too large (memory or latency), go down; right, remember it, say
that one was found, and go up for more throughput. What to do with a batch that is small enough but too slow, the
listing answers with `break`; as throughput grows with the batch, a larger one may do, so here the search goes up.
"""

from __future__ import annotations

from dataclasses import dataclass

from solvers.inss.batching.problem import BatchedModel, BatchingProblem


@dataclass(frozen=True, slots=True)
class Decided:
    """Batches by model, and who was found one; the others keep what they ran at."""

    batches: dict[str, int]
    found: dict[str, bool]  # of the models that were looked at

    @property
    def flag(self) -> bool:
        return all(self.found.values())


def bda(problem: BatchingProblem) -> Decided:
    """As the text has it. One model alone: exact where latency, throughput and memory grow with the batch."""
    decided = _start(problem)
    for model in problem.models:
        decided.found[model.name] = False
        low, high = 1, len(model.options)
        while low <= high:
            middle = (low + high) // 2
            if _is_too_large(problem, model, middle, decided.batches):
                high = middle - 1
            elif _is_too_slow(model, middle):
                low = middle + 1
            else:
                decided.batches[model.name] = middle
                decided.found[model.name] = True
                low = middle + 1
        if not decided.found[model.name]:
            break  # no batch will do for this model: its SM%, or its place, must change
    return decided


def printed_listing(problem: BatchingProblem) -> Decided:
    """As Algorithm 1 is printed, a baseline: it stops at a batch that is too slow, and its flag is set on failure."""
    decided = _start(problem)
    for model in problem.models:
        decided.found[model.name] = False
        low, high = 1, len(model.options)
        while low <= high:
            middle = (low + high) // 2
            if _is_too_large(problem, model, middle, decided.batches):
                high = middle - 1
                decided.found[model.name] = True  # line 7
            elif _is_too_slow(model, middle):
                break  # line 10
            else:
                decided.batches[model.name] = middle
                low = middle + 1
        if not decided.found[model.name]:
            break
    return decided


def _start(problem: BatchingProblem) -> Decided:
    return Decided({model.name: model.batch for model in problem.models}, {})


def _is_too_large(problem: BatchingProblem, model: BatchedModel, batch: int, batches: dict[str, int]) -> bool:
    """(4a) with the others as they are decided so far, (4b)."""
    memory_gib = 0.0
    for other in problem.models:
        memory_gib += other.at(batch if other is model else batches[other.name]).memory_gib
    return memory_gib > problem.memory_gib or model.at(batch).task_latency_ms > model.slo_ms


def _is_too_slow(model: BatchedModel, batch: int) -> bool:
    """(4c)"""
    return model.at(batch).throughput_per_second < model.rate_per_second
