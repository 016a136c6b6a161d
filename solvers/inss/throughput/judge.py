"""Judges an answer by InSS's constraints (1a)-(1c) and (1e), and by its reward. It shares no code with the solvers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from solvers.inss.throughput.problem import Answer, ServedModel, ThroughputProblem

NumberedGpu: TypeAlias = tuple[str, int]  # its type, and its number there
TOLERANCE = 1e-9  # relative: the rounding of floating-point sums


def list_together(answer: Answer) -> Mapping[NumberedGpu, Sequence[str]]:
    """Returns the models on each GPU."""
    found: dict[NumberedGpu, list[str]] = defaultdict(list)
    for name, served in answer.items():
        found[served.gpu_type, served.gpu].append(name)
    return found


def exec_ms(problem: ThroughputProblem, answer: Answer, name: str, together: Sequence[str]) -> float:
    """Returns the time of one batch next to its neighbours."""
    served, models = answer[name], problem.by_name
    speed = models[name].speeds[served.gpu_type]
    used = 0.0
    for other in together:
        if other != name:
            theirs = models[other].speeds[served.gpu_type]
            used += theirs.cache_slope * answer[other].sm_percent / 100 + theirs.cache_base
    return speed.run_ms[served.batch, served.sm_percent] * (1 + speed.cache_sensitivity * used)


def count_served(problem: ThroughputProblem, answer: Answer, name: str, at_ms: float) -> float:
    """Returns the part of h that keeps the SLO, linear between the points of the shape's curve."""
    served = answer[name]
    curve, h = problem.by_name[name].shapes[served.batch].usable, throughput(served, at_ms)
    for (low_ms, low), (high_ms, high) in pairwise(curve):
        if low_ms <= at_ms <= high_ms:
            return h * (low + (high - low) * (at_ms - low_ms) / (high_ms - low_ms))
    return h * (curve[0][1] if at_ms < curve[0][0] else curve[-1][1])


def throughput(served: ServedModel, at_ms: float) -> float:
    """Returns h: the requests a second when batches run back to back."""
    return served.batch / at_ms * 1000


def objective(problem: ThroughputProblem, answer: Answer) -> float:
    """Returns the sum of h / H, less the penalty for the shares of rates that are not served."""
    total, together = 0.0, list_together(answer)
    for model in problem.models:
        missed = 1.0
        if served := answer.get(model.name):
            at_ms = exec_ms(problem, answer, model.name, together[served.gpu_type, served.gpu])
            total += throughput(served, at_ms) / model.norm_per_second
            missed = max(0.0, 1 - count_served(problem, answer, model.name, at_ms) / model.rate_per_second)
        total -= problem.penalty * missed
    return total


def violations(problem: ThroughputProblem, answer: Answer) -> list[str]:
    """Returns a sentence for every broken constraint."""
    found = []
    models, together = problem.by_name, list_together(answer)
    for name, served in sorted(answer.items()):
        if name not in models or served.gpu_type not in models[name].speeds:
            return [f"{name} on {served.gpu_type} was never measured"]
        if not 0 <= served.gpu < problem.gpus.get(served.gpu_type, 0):
            found.append(f"{name}: there is no GPU {served.gpu} of type {served.gpu_type}")
        if served.batch not in models[name].shapes or served.sm_percent not in problem.sm_steps:
            return [*found, f"{name}: batch {served.batch} at {served.sm_percent} % is not an option"]
    for place, here in sorted(together.items()):
        percent = sum(answer[name].sm_percent for name in here)
        memory = sum(models[name].shapes[answer[name].batch].memory_gib for name in here)
        families = [models[name].family for name in here if models[name].family]
        if len(set(families)) < len(families):
            found.append(f"{place[0]} {place[1]}: two models of one family share it")
        if len(here) > 1 and any(models[name].is_dedicated for name in here):
            found.append(f"{place[0]} {place[1]}: a model that needs the GPU alone shares it")
        if percent > 100:  # (1a)
            found.append(f"{place[0]} {place[1]}: {percent} % of the SMs are assigned")
        if memory > problem.type_of[place[0]].memory_gib * (1 + TOLERANCE):  # (1b)
            found.append(f"{place[0]} {place[1]}: {memory:g} GiB are used of {problem.type_of[place[0]].memory_gib:g}")
    for name, chosen in sorted(answer.items()):
        late = exec_ms(problem, answer, name, together[chosen.gpu_type, chosen.gpu])
        most = models[name].shapes[chosen.batch].most_exec_ms
        if late > most * (1 + TOLERANCE):  # (1c)
            found.append(f"{name}: a batch takes {late:g} ms; its SLO allows {most:g} ms")
    return found
