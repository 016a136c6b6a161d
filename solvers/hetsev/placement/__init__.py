"""Places given instances on given GPUs: CP-SAT with its proof, HetSev's rounds and best fit."""

from __future__ import annotations

from dataclasses import replace

from solvers.hetsev.placement import exact, greedy, judge, queues
from solvers.hetsev.placement.problem import (
    Placement,
    PlacementGpu,
    PlacementInstance,
    PlacementNode,
    PlacementOutcome,
    PlacementProblem,
    WrongPlacement,
)
from solvers.hetsev.placement.rooms import Rooms
from solvers.proof import Proof, below, must_be_right

__all__ = [
    "Placement",
    "PlacementGpu",
    "PlacementInstance",
    "PlacementNode",
    "PlacementOutcome",
    "PlacementProblem",
    "WrongPlacement",
    "place",
]


def place(problem: PlacementProblem, work: float = 5.0) -> PlacementOutcome:
    """Returns the cheapest placement of all methods, judged, with its bound and a reason for each unplaced instance.

    `work` is CP-SAT's limit in deterministic seconds; at 0 it is not run.
    """
    if broken := judge.violations(problem, problem.current):
        outcome = _certified(problem, dict(problem.current), None, "current placement")
        reason = f"the current placement breaks a rule: {broken[0]}"
        return replace(outcome, reasons={instance.name: reason for instance in problem.pending})
    answers = [(greedy.solve(problem), "best fit"), (queues.schedule(problem), "queues, worst fit")]
    bound = None
    if work > 0:
        hint = min(answers, key=lambda answer: judge.cost(problem, answer[0]))[0]
        claim = exact.solve(problem, work, hint)
        if claim is not None:
            bound = claim.bound
            method = "CP-SAT" if claim.is_proved else "CP-SAT, cut short"
            answers.insert(0, (claim.placement, method))
    for placement, method in answers:
        must_be_right(method, judge.violations(problem, placement))
    placement, method = min(answers, key=lambda answer: judge.cost(problem, answer[0]))
    return _certified(problem, placement, bound, method)


def _certified(problem: PlacementProblem, placement: Placement, bound: float | None, method: str) -> PlacementOutcome:
    cost = judge.cost(problem, placement)
    if bound is None:
        proof = Proof(cost, None, f"{method}; bound unknown")
    else:
        least = below(bound, cost, method)
        proof = Proof(cost, least, method)
    return PlacementOutcome(placement, _reasons(problem, placement), proof)


def _reasons(problem: PlacementProblem, placement: Placement) -> dict[str, str]:
    rooms = Rooms(problem)
    for name, where in sorted(placement.items()):
        if name not in problem.current:
            rooms.put(problem.by_name[name], problem.gpu_by_name[where])
    unplaced = [instance for instance in problem.instances if instance.name not in placement]
    return {instance.name: rooms.why_not(instance) for instance in unplaced}
