"""Chooses how many instances of each type a service runs: HetSev's integer program and heuristic in one function."""

from __future__ import annotations

from solvers.hetsev.scaling import exact, greedy, judge
from solvers.hetsev.scaling.problem import (
    Actions,
    InstanceType,
    ScalingBudget,
    ScalingOutcome,
    ScalingProblem,
    ScalingPromise,
    WrongScaling,
)
from solvers.proof import Proof, below, must_be_right

__all__ = [
    "Actions",
    "InstanceType",
    "ScalingBudget",
    "ScalingOutcome",
    "ScalingProblem",
    "ScalingPromise",
    "WrongScaling",
    "scale",
]


UNTIL_PROVED = ScalingBudget()


def scale(problem: ScalingProblem, budget: ScalingBudget = UNTIL_PROVED) -> ScalingOutcome:
    """Returns the cheaper of the exact and the heuristic answer, judged; the heuristic's if the budget runs out."""
    answers: list[tuple[Actions, str]] = []
    bound = None
    if budget.nodes != 0:
        claim = exact.solve(problem, budget)
        bound = claim.bound
        if claim.actions is not None:
            method = f"integer program, {budget.solver}" + ("" if claim.is_proved else ", cut short")
            answers.append((claim.actions, method))
    answers.append((greedy.solve(problem), "greedy" if bound is not None else "greedy; bound unknown"))
    certified = [_certify(problem, actions, bound, method) for actions, method in answers]
    return min(certified, key=lambda outcome: outcome.proof.value)


def _certify(problem: ScalingProblem, actions: Actions, bound: float | None, method: str) -> ScalingOutcome:
    must_be_right(method, judge.violations(problem, actions))
    cost = judge.cost(problem, actions)
    least = None if bound is None else below(bound, cost, method)
    return ScalingOutcome(dict(actions), judge.unserved(problem, actions), Proof(cost, least, method))
