"""Finds the batches of highest throughput with a proof: combines every valid batch of every model within memory."""

from __future__ import annotations

from dataclasses import dataclass

from solvers.inss.batching.problem import BatchedModel, BatchingProblem


@dataclass(frozen=True, slots=True)
class ExactBatches:
    """The best batches, None if there are none or work ran out, and an upper bound of all valid answers."""

    batches: dict[str, int] | None
    bound_per_second: float | None  # None: no valid answer exists
    work: int


@dataclass(frozen=True, slots=True)
class Partial:
    """Batches of the first models, with the memory they use and the throughput they serve."""

    memory_gib: float
    throughput_per_second: float
    batches: tuple[int, ...]


def valid_alone(problem: BatchingProblem, model: BatchedModel) -> list[int]:
    """Returns the batches that meet (4b) and (4c) and fit into the whole GPU."""
    return [
        batch
        for batch, option in enumerate(model.options, start=1)
        if option.task_latency_ms <= model.slo_ms
        and option.throughput_per_second >= model.rate_per_second
        and option.memory_gib <= problem.memory_gib
    ]


def highest_throughput(problem: BatchingProblem, work_limit: int) -> ExactBatches:
    """Adds one model after another and keeps the combinations that no other beats in both memory and throughput."""
    choices = [valid_alone(problem, model) for model in problem.models]
    if not all(choices):
        return ExactBatches(None, None, 0)
    best_alone = [
        max(model.at(batch).throughput_per_second for batch in valid)
        for model, valid in zip(problem.models, choices, strict=True)
    ]
    partials, work = [Partial(0.0, 0.0, ())], 0
    for place, (model, valid) in enumerate(zip(problem.models, choices, strict=True)):
        work += len(partials) * len(valid)
        if work > work_limit:
            reached = max(partial.throughput_per_second for partial in partials)
            return ExactBatches(None, reached + sum(best_alone[place:]), work)
        partials = select_unbeaten(
            [
                Partial(
                    partial.memory_gib + model.at(batch).memory_gib,
                    partial.throughput_per_second + model.at(batch).throughput_per_second,
                    (*partial.batches, batch),
                )
                for partial in partials
                for batch in valid
            ],
            problem.memory_gib,
        )
        if not partials:
            return ExactBatches(None, None, work)
    best = max(partials, key=lambda partial: partial.throughput_per_second)  # of equals, the one of least memory
    names = (model.name for model in problem.models)
    return ExactBatches(dict(zip(names, best.batches, strict=True)), best.throughput_per_second, work)


def select_unbeaten(partials: list[Partial], memory_gib: float) -> list[Partial]:
    """Returns, by rising memory, the partials that serve more than every partial with less memory."""
    best: list[Partial] = []
    for partial in sorted(partials, key=lambda each: (each.memory_gib, -each.throughput_per_second, each.batches)):
        if partial.memory_gib > memory_gib:
            break
        if not best or partial.throughput_per_second > best[-1].throughput_per_second:
            best.append(partial)
    return best
