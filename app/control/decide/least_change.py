"""The least change: the plan in force follows the rates that moved, and nothing else moves.

A full plan may be cheaper but move half the fleet: hours of hand-overs, most of which find no room. Then the smaller
change is made, and the decision says what the larger plan would save.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from app.control.domain.decision import Decision, HeldBackChange, SolverAnswer
from app.control.domain.events import Reason
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from app.control.formulate.running import running_plan
from solvers.planning.judge.changes import moved_services
from solvers.planning.kept_bound import KeptBound, add_bound
from solvers.planning.plan import Changes, Plan, Unserved, take_shortfalls
from solvers.planning.problem import Problem

MOST_OTHERS = 3  # services that move at once so that others are served; what moves more of them waits
FEW_HANDOVERS = 20  # any fleet can make so many
MOST_SHARE = 0.25  # of what runs
MOST_HANDOVERS = 500  # with more of them no order of steps is searched
LEAST_RATE = 1e-3  # requests a second: the least that a problem may state
EQUAL_SHARE = 1e-9


def is_too_large(snapshot: Snapshot, changes: Changes) -> bool:
    """Returns whether so much would be handed over that the plan is another fleet."""
    running = sum(len(wanted.instances) for wanted in snapshot.in_force.values())
    return bool(running) and count_handed_over(changes) > max(FEW_HANDOVERS, MOST_SHARE * running)


def find_moved_others(question: Question, plan: Plan) -> frozenset[str]:
    """Returns the services that a plan moves though the plan in force serves them as promised."""
    running = question.problem.state.running if question.problem.state else ()
    return moved_services(plan.instances, running) - question.lacking


def count_handed_over(changes: Changes) -> int:
    """Returns how many instances would give way to others."""
    return changes.move + changes.resize + min(changes.start, changes.stop)


def follow_rates(question: Question) -> tuple[Problem, Plan, Mapping[str, float]]:
    """Returns what the solver needs to follow: the problem that the plan in force answers, that plan, the new rates."""
    running = running_plan(question.problem)  # at the rates that it was made for
    carried = dict.fromkeys(question.problem.services, 0.0)
    for instance in running.instances:
        carried[instance.service] += instance.rate_per_second
    rates = {
        name: service.rate_per_second
        for name, service in question.problem.services.items()
        if abs(service.rate_per_second - carried[name]) > EQUAL_SHARE * service.rate_per_second
    }
    then = {name: max(carried[name], LEAST_RATE) for name in rates}
    unserved = tuple(Unserved(name, LEAST_RATE) for name in sorted(rates) if carried[name] < LEAST_RATE)
    return question.problem.change_rates(then), replace(running, unserved=unserved), rates


def take_bound_of_search(
    plan: Plan, large: SolverAnswer, kept: KeptBound | None, problem: Problem, now: datetime
) -> Plan:
    """Returns the least change with the bound and others' plans of the search, as both answer the same question."""
    own, known = plan.certificate, large.plan and large.plan.certificate
    if own is None:
        return plan
    own = replace(own, others=known.others if known else ())
    if kept is None and known and known.bound is not None:  # without GPUs the cost itself is the bound
        return replace(plan, certificate=replace(own, bound=min(known.bound, own.cost.total)))
    shortfalls = take_shortfalls(problem, plan, large.plan)
    return replace(plan, certificate=replace(add_bound(own, problem, kept, now), shortfalls=shortfalls))


def explain_skipped(decision: Decision, large: Plan) -> Decision:
    """Adds to a least change what the larger plan would save and serve by its hand-overs."""
    if not decision.answer.is_least_change:
        return decision
    smaller, larger = decision.plan.certificate, large.certificate
    if not (smaller and larger) or not count_handed_over(large.changes) or smaller.cost.total <= larger.cost.total:
        return decision
    saved = smaller.cost.resource - larger.cost.resource
    served = math.fsum(each.rate_per_second for each in decision.plan.unserved)
    served -= math.fsum(each.rate_per_second for each in large.unserved)
    money = f"save {saved:,.2f} an hour" if saved >= 0 else f"cost {-saved:,.2f} more an hour"
    gain = f"serve {served:,.4g} more requests a second and {money}" if served > LEAST_RATE else money
    message = f"{count_handed_over(large.changes)} hand-overs would {gain}; smaller changes are made instead"
    return replace(decision, held_back=(*decision.held_back, HeldBackChange("", Reason.TOO_MANY_MOVES, message)))
