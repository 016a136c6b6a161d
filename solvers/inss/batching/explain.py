"""Explains why the models on a GPU have no valid batches."""

from __future__ import annotations

from solvers.inss.batching.answer import NoBatches
from solvers.inss.batching.problem import BatchedModel, BatchingProblem


def no_batches(problem: BatchingProblem, is_proved: bool, work: int) -> NoBatches:
    """Explains each model on its own, then the memory that all share."""
    in_time = [_list_in_time(model) for model in problem.models]
    reasons = [_explain_block(model) for model, batches in zip(problem.models, in_time, strict=True) if not batches]
    needed_gib = sum(
        min(model.at(batch).memory_gib for batch in batches or range(1, len(model.options) + 1))
        for model, batches in zip(problem.models, in_time, strict=True)
    )
    if needed_gib > problem.memory_gib:
        reasons.append(f"at least {needed_gib:g} GiB are needed; the GPU has {problem.memory_gib:g}")
    if not is_proved:
        reasons.append(f"no valid batches were found among {work} combinations")
    return NoBatches("; ".join(reasons))


def _list_in_time(model: BatchedModel) -> list[int]:
    """Returns the batches that meet SLO and rate, regardless of their memory."""
    return [
        batch
        for batch, option in enumerate(model.options, start=1)
        if option.task_latency_ms <= model.slo_ms and option.throughput_per_second >= model.rate_per_second
    ]


def _explain_block(model: BatchedModel) -> str:
    fast = [option for option in model.options if option.task_latency_ms <= model.slo_ms]
    if not fast:
        least_ms = min(option.task_latency_ms for option in model.options)
        return f"{model.name} takes {least_ms:g} ms or more; its SLO is {model.slo_ms:g} ms"
    most = max(option.throughput_per_second for option in fast)
    return f"{model.name} serves {most:g} requests per second within its SLO; {model.rate_per_second:g} arrive"
