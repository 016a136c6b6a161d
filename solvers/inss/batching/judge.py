"""The truth about batches on one GPU, in plain loops: what they break, and what they serve. It knows no solver."""

from __future__ import annotations

from collections.abc import Mapping

from solvers.inss.batching.problem import BatchingProblem


def violations(problem: BatchingProblem, batches: Mapping[str, int]) -> list[str]:
    """Every constraint of InSS's (4a) to (4d) that these batches break; none means right."""
    wrong = []
    memory_gib = 0.0
    for model in problem.models:
        batch = batches.get(model.name)
        if batch is None or not 1 <= batch <= len(model.options):  # (4d)
            wrong.append(f"{model.name} has batch {batch}; 1..{len(model.options)} are allowed")
            continue
        option = model.at(batch)
        memory_gib += option.memory_gib
        if option.task_latency_ms > model.slo_ms:  # (4b)
            wrong.append(
                f"{model.name} at batch {batch} takes {option.task_latency_ms:g} ms; {model.slo_ms:g} are meant"
            )
        if option.throughput_per_second < model.rate_per_second:  # (4c)
            served = f"{option.throughput_per_second:g} of {model.rate_per_second:g} requests per second"
            wrong.append(f"{model.name} at batch {batch} serves {served}")
    if memory_gib > problem.memory_gib:  # (4a)
        wrong.append(f"{memory_gib:g} GiB are taken; the GPU has {problem.memory_gib:g}")
    return wrong


def throughput_per_second(problem: BatchingProblem, batches: Mapping[str, int]) -> float:
    """(4): what all models together could serve."""
    total = 0.0
    for model in problem.models:
        total += model.at(batches[model.name]).throughput_per_second
    return total
