"""InSS's batch decision algorithm: a binary search for the batch of one model after another.

The paper's text and its listing differ. By the text, the search goes down from a batch that is too large (memory or
latency); it records a valid batch and goes up for more throughput. At a batch that is small enough but too slow, the
listing stops with `break`. Throughput grows with the batch, so a larger one may do; here the search goes up.
"""

from __future__ import annotations

from dataclasses import dataclass

from solvers.inss.batching.problem import BatchedModel, BatchingProblem


@dataclass(frozen=True, slots=True)
class Decided:
    """Batches by model, and the models for which a batch was found; the others keep their current batch."""

    batches: dict[str, int]
    found: dict[str, bool]  # of the models that were searched

    @property
    def flag(self) -> bool:
        return all(self.found.values())


def bda(problem: BatchingProblem) -> Decided:
    """Follows the text. For one model alone it is exact if latency, throughput and memory grow with the batch."""
    decided = Decided({model.name: model.batch for model in problem.models}, {})
    for model in problem.models:
        decided.found[model.name] = False
        low, high = 1, len(model.options)
        while low <= high:
            middle = (low + high) // 2
            if _is_too_large(problem, model, middle, decided.batches):
                high = middle - 1
            elif model.at(middle).throughput_per_second < model.rate_per_second:
                low = middle + 1
            else:
                decided.batches[model.name] = middle
                decided.found[model.name] = True
                low = middle + 1
        if not decided.found[model.name]:
            break  # no batch is valid for this model: its SM% or its GPU must change
    return decided


def _is_too_large(problem: BatchingProblem, model: BatchedModel, batch: int, batches: dict[str, int]) -> bool:
    """Checks (4a), with the other models' batches as decided so far, and (4b)."""
    memory_gib = 0.0
    for other in problem.models:
        memory_gib += other.at(batch if other is model else batches[other.name]).memory_gib
    return memory_gib > problem.memory_gib or model.at(batch).task_latency_ms > model.slo_ms
