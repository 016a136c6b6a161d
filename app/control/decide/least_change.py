"""The least change that answers: the plan that stands follows the rates that moved, and nothing else moves.

A full plan may be cheaper, and move half the fleet for it: hours of hand-overs, of which most find no room. Then the
small step is taken, and what the large one would save is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.events import Reason
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from solvers.planning.plan import Changes, Plan, Unserved
from solvers.planning.problem import Problem

FEW = 20  # moves and resizes that no fleet minds
PART = 0.25  # of what runs
ORDERED = 500  # hand-overs: among more nobody looks for an order of steps
NOTHING = 1e-3  # requests a second: the least that a problem may ask for
SAME = 1e-9


def is_too_large(snapshot: Snapshot, changes: Changes) -> bool:
    """Whether so much would be handed over that the plan is another fleet."""
    running = sum(len(wanted.instances) for wanted in snapshot.in_force.values())
    return bool(running) and handed_over(changes) > max(FEW, PART * running)


def handed_over(changes: Changes) -> int:
    """How many instances would give way to others."""
    return changes.move + changes.resize + min(changes.start, changes.stop)


def follow_rates(posed: Question) -> tuple[Problem, Plan, Mapping[str, float]]:
    """What the solver's short way is asked: the problem that what stands answers, what stands, the rates to come."""
    stands = posed.plan_in_force
    carried = dict.fromkeys(posed.problem.services, 0.0)
    for one in stands.instances:
        carried[one.service] += one.rate_per_second
    rates = {
        name: service.rate_per_second
        for name, service in posed.problem.services.items()
        if abs(service.rate_per_second - carried[name]) > SAME * service.rate_per_second
    }
    then = {name: max(carried[name], NOTHING) for name in rates}
    left = tuple(Unserved(name, NOTHING) for name in sorted(rates) if carried[name] < NOTHING)
    return posed.problem.with_rates(then), replace(stands, unserved=left), rates


def is_preferred(small: Plan, large: Plan) -> bool:
    """Whether the small step leaves no more unserved, or the large one is too large to look for an order of steps."""
    if handed_over(large.changes) > ORDERED:
        return True
    one, other = small.certificate, large.certificate
    return one is not None and other is not None and one.cost.unserved <= other.cost.unserved * (1 + SAME) + SAME


def explain_skipped(decision: Decision, large: Plan) -> Decision:
    """The small step, with what the large one would save by its hand-overs."""
    if not handed_over(large.changes):
        return decision
    one, other = decision.plan.certificate, large.certificate
    saved = one.cost.total - other.cost.total if one and other else 0.0
    told = f"{handed_over(large.changes)} hand-overs would save {saved:.4g} an hour; the least change was made"
    return replace(decision, held_back=(*decision.held_back, HeldBackChange("", Reason.TOO_MANY_MOVES, told)))
