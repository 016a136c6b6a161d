"""Morak's four knobs, solved centrally: model, SM%, batch and clock of every GPU within caps and a power budget.

The planner `morak` plans services at their rates with the same options and knapsack; this is the paper's own problem,
at saturated load, with a proof.
"""

from __future__ import annotations

from lab.morak import exact, explain, greedy, judge
from lab.morak.classes import alike
from lab.morak.problem import PoweredGpu, PoweredSetting, PowerPlan, PowerProblem, Starved, WrongPowerProblem
from solvers.proof import Proof, above, must_be_right

__all__ = ["PowerPlan", "PowerProblem", "PoweredGpu", "PoweredSetting", "Starved", "WrongPowerProblem", "cap"]


def cap(problem: PowerProblem, work: int = 1_000_000) -> PowerPlan:
    """Returns the settings of most worth. `work` limits the splits and sums computed; 0 still answers, with a bound."""
    groups = alike(problem)
    claim = exact.solve(problem, groups, work)
    answers = []
    for settings, method in ((claim.settings, claim.method), (greedy.solve(problem, groups), "greedy by knees")):
        must_be_right(method, judge.violations(problem, settings))
        answers.append((judge.worth_per_second(problem, settings), method, settings))
    worth, method, settings = max(answers, key=lambda answer: answer[0])  # the exact one if both are worth the same
    proof = Proof(worth, above(claim.bound, worth, method), method, claim.work)
    return PowerPlan(settings, proof, explain.starved(problem, settings))
