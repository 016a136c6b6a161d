"""Finds the best setting of every GPU with a proof: all splits of each class, then the knapsack over watts."""

from __future__ import annotations

from dataclasses import dataclass

from lab.morak.bound import bound as dual_bound
from lab.morak.classes import Alike, room_w, settings
from lab.morak.problem import PoweredSetting, PowerProblem
from lab.morak.tables import tables
from solvers.morak.power.knapsack import NOISE, Front, exact
from solvers.morak.power.options import IDLE, PowerOption, PowerTables, enumerate_options, narrow_options


@dataclass(frozen=True, slots=True)
class ExactPower:
    """An answer and an upper bound of all answers."""

    settings: tuple[PoweredSetting, ...]
    bound: float
    method: str
    work: int


def solve(problem: PowerProblem, groups: list[Alike], work: int) -> ExactPower:
    """Spends half the work on splits, class by class, and the rest on the knapsack; what is not reached is bounded."""
    room = room_w(problem)
    if room is not None and room < 0:
        return ExactPower((), 0.0, "the idle GPUs alone exceed the budget", 0)
    each = work // 2 // max(1, len(groups))
    options: list[list[PowerOption]] = []
    complete: list[Front] = []
    open_ended: list[tuple[PowerTables, int]] = []
    done = 0
    for group in groups:
        items = tables(problem, group.gpus[0])
        found = enumerate_options(items, group.cap_w, problem.residents_per_gpu, each)
        if found:
            complete.append(group.front(found[0]))
        else:
            open_ended.append((items, len(group.gpus)))
            found = narrow_options(items, group.cap_w, problem.residents_per_gpu, each) if each else ([IDLE], 0)
        options.append(found[0])
        done += found[1]
    fronts = [group.front(mine) for group, mine in zip(groups, options, strict=True)]
    if room is None:
        picks = [[len(mine) - 1] * len(group.gpus) for group, mine in zip(groups, options, strict=True)]
        bound = sum(front.gpus * float(front.worth[-1]) for front in fronts) * (1 + NOISE)
        is_proved = True
    else:
        choice = exact(fronts, room, work - done)
        picks, bound, is_proved = [list(chosen) for chosen in choice.picks], choice.bound, choice.is_proved
        done += choice.work
    splits = "all splits"
    if open_ended:
        bound = dual_bound(complete, open_ended, problem.residents_per_gpu, room)
        splits = "the most promising splits, bound without interference"
    knapsack = "knapsack proved" if is_proved else "knapsack by its most promising sums, LP bound"
    chosen = settings(groups, [[mine[pick] for pick in p] for mine, p in zip(options, picks, strict=True)])
    return ExactPower(chosen, bound, f"exact: {splits}; {knapsack}", done)
