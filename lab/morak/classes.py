"""Classes of GPUs with equal type, cap and admitted models, which therefore have the same options."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.morak.problem import PoweredGpu, PoweredSetting, PowerProblem
from solvers.morak.power.knapsack import Front
from solvers.morak.power.options import LET_GO, PowerOption


@dataclass(frozen=True, slots=True)
class Alike:
    """A class of equal GPUs, in order of name; there is at least one."""

    gpus: tuple[PoweredGpu, ...]
    cap_w: float

    def front(self, options: Sequence[PowerOption]) -> Front:
        return Front(
            np.array([option.watts for option in options]),
            np.array([option.worth_per_second for option in options]),
            len(self.gpus),
        )


def alike(problem: PowerProblem) -> list[Alike]:
    """Groups the fleet into classes, in an order that depends on names alone."""
    groups: dict[tuple[str, float, tuple[str, ...] | None], list[PoweredGpu]] = defaultdict(list)
    for gpu in sorted(problem.gpus, key=lambda gpu: gpu.name):
        admitted = None if gpu.models is None else tuple(sorted(gpu.models))
        groups[gpu.gpu_type, problem.cap_w(gpu), admitted].append(gpu)
    return [Alike(tuple(gpus), problem.cap_w(gpus[0])) for gpus in groups.values()]


def room_w(problem: PowerProblem) -> float | None:
    """Returns the part of the budget above the idle draw of all GPUs, or None without a budget."""
    if problem.budget_w is None:
        return None
    return problem.budget_w * (1 + LET_GO) - sum(problem.gpu_types[gpu.gpu_type].idle_w for gpu in problem.gpus)


def settings(groups: Sequence[Alike], choices: Sequence[Sequence[PowerOption]]) -> tuple[PoweredSetting, ...]:
    """Assigns the options to GPUs by name; within a class, the first names get the options of most watts."""
    found = []
    for group, chosen in zip(groups, choices, strict=True):
        busiest = sorted(chosen, key=lambda option: (-option.watts, -option.worth_per_second, option.residents))
        found += [
            PoweredSetting(gpu.name, option.clock_mhz, option.residents)
            for gpu, option in zip(group.gpus, busiest, strict=True)
            if option.residents
        ]
    return tuple(sorted(found, key=lambda setting: setting.gpu))
