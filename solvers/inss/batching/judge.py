"""Judges the batches of one GPU, in plain loops: broken constraints and throughput. It knows no solver."""

from __future__ import annotations

from collections.abc import Mapping

from solvers.inss.batching.problem import BatchingProblem


def violations(problem: BatchingProblem, batches: Mapping[str, int]) -> list[str]:
    """Returns a sentence for every one of InSS's constraints (4a) to (4d) that these batches break."""
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
            took = f"{model.name} at batch {batch} takes {option.task_latency_ms:g} ms"
            wrong.append(f"{took}; its SLO is {model.slo_ms:g} ms")
        if option.throughput_per_second < model.rate_per_second:  # (4c)
            served = f"{option.throughput_per_second:g} of {model.rate_per_second:g} requests per second"
            wrong.append(f"{model.name} at batch {batch} serves {served}")
    if memory_gib > problem.memory_gib:  # (4a)
        wrong.append(f"{memory_gib:g} GiB are used; the GPU has {problem.memory_gib:g}")
    return wrong


def throughput_per_second(problem: BatchingProblem, batches: Mapping[str, int]) -> float:
    """Returns (4): the requests a second that all models together can serve."""
    total = 0.0
    for model in problem.models:
        total += model.at(batches[model.name]).throughput_per_second
    return total
