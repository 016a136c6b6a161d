"""Explains why the models on a GPU have no valid batches, and which changes would together give them some."""

from __future__ import annotations

from dataclasses import replace

from solvers.inss.batching.answer import NeededChange, NoBatches
from solvers.inss.batching.problem import BatchedModel, BatchingProblem


def no_batches(problem: BatchingProblem, is_proved: bool, work: int) -> NoBatches:
    """Explains each model on its own, then the memory that all share."""
    blocked = [model for model in problem.models if not list_batches_in_time(model)]
    changes = tuple(change for model in blocked for change in least_changes(model))
    needed_gib = least_memory_gib(replace(problem, models=tuple(ease(model, changes) for model in problem.models)))
    reasons = [_explain_block(model) for model in blocked]
    if needed_gib > problem.memory_gib:
        changes = (*changes, NeededChange("the GPU", "memoryGib", needed_gib))
        reasons.append(f"at least {needed_gib:g} GiB are needed; the GPU has {problem.memory_gib:g}")
    if not is_proved:
        reasons.append(f"no valid batches were found among {work} combinations")
    cannot_run = tuple(model.name for model in blocked) or tuple(model.name for model in problem.models)
    return NoBatches(cannot_run, "; ".join(reasons), changes, is_proved, work)


def list_batches_in_time(model: BatchedModel) -> list[int]:
    """Returns the batches that meet SLO and rate, regardless of their memory."""
    return [
        batch
        for batch, option in enumerate(model.options, start=1)
        if option.task_latency_ms <= model.slo_ms and option.throughput_per_second >= model.rate_per_second
    ]


def least_changes(model: BatchedModel) -> tuple[NeededChange, ...]:
    """Returns the changes that make one batch valid: as few numbers as possible, then the least relative change."""

    def needed(batch: int) -> tuple[NeededChange, ...]:
        option, changes = model.at(batch), []
        if option.task_latency_ms > model.slo_ms:
            changes.append(NeededChange(model.name, "sloMs", option.task_latency_ms))
        if option.throughput_per_second < model.rate_per_second:
            changes.append(NeededChange(model.name, "ratePerSecond", option.throughput_per_second))
        return tuple(changes)

    def size(batch: int) -> tuple[int, float, int]:
        old = {"sloMs": model.slo_ms, "ratePerSecond": model.rate_per_second}
        changes = needed(batch)
        return len(changes), sum(abs(change.value / old[change.what] - 1) for change in changes), batch

    possible = [batch for batch in range(1, len(model.options) + 1) if model.at(batch).throughput_per_second > 0]
    return needed(min(possible, key=size)) if possible else ()


def ease(model: BatchedModel, changes: tuple[NeededChange, ...]) -> BatchedModel:
    """Returns the model with its own changes applied."""
    for change in changes:
        if change.of == model.name:
            field = {"sloMs": "slo_ms", "ratePerSecond": "rate_per_second"}[change.what]
            model = replace(model, **{field: change.value})  # type: ignore[arg-type]
    return model


def least_memory_gib(problem: BatchingProblem) -> float:
    """Returns the least memory that valid batches of all models use together."""
    return sum(
        min((model.at(batch).memory_gib for batch in list_batches_in_time(model)), default=0.0)
        for model in problem.models
    )


def _explain_block(model: BatchedModel) -> str:
    fast = [option for option in model.options if option.task_latency_ms <= model.slo_ms]
    if not fast:
        least_ms = min(option.task_latency_ms for option in model.options)
        return f"{model.name} takes {least_ms:g} ms or more; its SLO is {model.slo_ms:g} ms"
    most = max(option.throughput_per_second for option in fast)
    return f"{model.name} serves {most:g} requests per second within its SLO; {model.rate_per_second:g} arrive"
