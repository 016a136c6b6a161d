"""Morak's heuristic in one pass: splits GPUs by the knees, then gives watts to the steps of most worth per watt."""

from __future__ import annotations

import numpy as np

from lab.morak.classes import Alike, room_w, settings
from lab.morak.problem import PoweredSetting, PowerProblem
from lab.morak.tables import tables
from solvers.morak.power.knapsack import greedy as most_per_watt
from solvers.morak.power.knees import share_at_knee
from solvers.morak.power.options import PowerOption, narrow_options

SETS = 20_000  # knee splits examined per class; if there are more, only the models of most worth per SM% take part


def solve(problem: PowerProblem, groups: list[Alike]) -> tuple[PoweredSetting, ...]:
    """Returns an answer in every case, in time that grows with the classes of GPUs, not with the splits."""
    fronts = [knee_options(problem, group) for group in groups]
    room = room_w(problem)
    if room is None:
        return settings(groups, [[options[-1]] * len(g.gpus) for g, options in zip(groups, fronts, strict=True)])
    if room <= 0:
        return ()
    picks = most_per_watt([group.front(options) for group, options in zip(groups, fronts, strict=True)], room)
    return settings(groups, [[options[pick] for pick in p] for options, p in zip(fronts, picks, strict=True)])


def knee_options(problem: PowerProblem, group: Alike) -> list[PowerOption]:
    """Returns the options of a GPU of this class if every model gets the available share nearest to its knee."""
    items = tables(problem, group.gpus[0])
    chosen: list[int] = []
    by_name = {model.name: model for model in problem.models}
    for place, name in enumerate(items.models):
        mine = np.flatnonzero(items.model == place)
        if len(mine):
            curves = by_name[name].profiles[group.gpus[0].gpu_type].latency_ms
            knee = share_at_knee(curves[max(curves)])
            chosen.append(int(mine[np.argmin(np.abs(items.share[mine] - knee))]))
    return narrow_options(items.only(np.array(chosen, np.int64)), group.cap_w, problem.residents_per_gpu, SETS)[0]
