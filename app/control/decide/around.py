"""Decides around GPUs where steps failed or watts are reserved, and writes such a decision for the fleet as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from app.control.decide.cost_alone import differs_by_cost_alone
from app.control.decide.decide import pose_once_reclaimed, pose_question, rejudge
from app.control.decide.resting import starting_services
from app.control.domain.decision import Decision, SolverAnswer
from app.control.domain.regret import NO_REGRETS, RegretAccounts
from app.control.domain.snapshot import Snapshot
from app.control.formulate.failed_places import avoid_failed_places
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from solvers.planning.kept_bound import KeptBound, drop_bound
from solvers.planning.plan import Plan

RESERVED = "GPUs whose nodes asked for another partition were planned with fewer watts than they may draw"
LEAST_LACK_SHARE = 1e-6  # of an unserved rate: less is rounding


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """An answer, and what came of it before batches; no decision if no right plan came."""

    answer: SolverAnswer
    searched: Snapshot  # the fleet as it was asked about: perhaps with closed GPUs, or from what nodes are assigned
    wanted: Decision | None = None  # before anything was held back
    decision: Decision | None = None
    kept_bound: KeptBound | None = None
    regrets: RegretAccounts = NO_REGRETS


Answering = Callable[[Snapshot, Question], FoundAnswer]


def answer_around_rests(
    snapshot: Snapshot, question: Question, around: Snapshot, asked: Question, answering: Answering
) -> FoundAnswer:
    """Answers around the GPUs where services rest; as usual, where load is unserved and that is no better."""
    if around is snapshot:
        return answering(snapshot, question)
    found, usually = answering(around, asked), partial(answering, snapshot, question)
    return prefer_around(snapshot, question, around, asked, found, usually)


def prefer_around(
    snapshot: Snapshot, question: Question, around: Snapshot, asked: Question, found: FoundAnswer,
    usually: Callable[[], FoundAnswer],
) -> FoundAnswer:  # fmt: skip
    """Returns the answer that was found around a part of the fleet, written for all of it.

    Where it leaves load unserved, the usual one is asked for, and taken unless it serves less.
    """
    found = _judge_found(snapshot, found, around)
    shortfalls = _list_shortfalls_in(snapshot, question, found)
    if shortfalls == {} and asked.shortages == question.shortages:
        return found
    usual = usually()
    others = _list_shortfalls_in(snapshot, question, usual)
    is_better = shortfalls is not None and (others is None or serves_more(shortfalls, others))
    return found if is_better else usual


def answer_elsewhere(snapshot: Snapshot, question: Question, found: FoundAnswer, answering: Answering) -> FoundAnswer:
    """Returns the answer; if services would start again where they failed lately, one that starts them elsewhere.

    It has to serve every service as well, and to run the same jobs: what only the GPUs of failed steps can take starts
    there. What cost alone decides is not searched again: that waits until it is due, which may take many cycles.
    """
    if found.decision is None or not (services := starting_services(snapshot, found.decision.desired)):
        return found
    if differs_by_cost_alone(snapshot, question, found.decision):
        return found
    shortfalls = list_shortfalls(snapshot, question, found.decision)
    for around in avoid_failed_places(found.searched, services):
        asked = formulate(around)
        other = _judge_found(snapshot, answering(around, asked), around)
        if other.decision is None or asked.shortages.keys() != question.shortages.keys():
            continue
        keeps_jobs = _jobs(found.decision) <= _jobs(other.decision)
        if keeps_jobs and serves_as_much(list_shortfalls(snapshot, question, other.decision), shortfalls):
            # The bound of the whole fleet, where that was searched, holds for more steps to come.
            return replace(other, kept_bound=found.kept_bound) if found.searched is snapshot else other
    return found


def _jobs(decision: Decision) -> set[str]:
    return {placed.job for placed in decision.plan.jobs}


def judge_in_whole_fleet(snapshot: Snapshot, decision: Decision, around: Snapshot) -> Decision | None:
    """Returns a decision made around closed GPUs, or from assignments, judged in the fleet as it is.

    None if the judge refuses it.
    """
    found = rejudge(snapshot, decision, decision.desired, ())
    if found is None:
        return None
    plan = found.plan
    if around.nodes != snapshot.nodes and plan.certificate:
        before = snapshot.nodes
        is_reserved = any(
            facts.keeps_reserve and not before[name].keeps_reserve for name, facts in around.nodes.items()
        )
        why = RESERVED if is_reserved else "GPUs where steps failed were closed to the search"
        plan = replace(plan, certificate=drop_bound(plan.certificate, why))
    return replace(found, plan=plan, answer=replace(found.answer, plan=plan))


def list_shortfalls(snapshot: Snapshot, question: Question, decision: Decision) -> dict[str, float]:
    """Returns, by service, the rate that is unserved if this is decided."""
    if decision.desired == snapshot.in_force:
        plan = question.plan_in_force
    else:
        then = pose_once_reclaimed(snapshot, decision.desired)
        plan = then.plan_in_force if then else decision.plan
    return _sum_by_service(plan)


def list_shortfalls_in_whole_fleet(snapshot: Snapshot, question: Question, decision: Decision) -> dict[str, float]:
    """Returns the shortfalls of a decision made around closed GPUs, or from assignments, once the fleet has it.

    It takes no judgement: a decision that serves too little need not be judged.
    """
    if decision.desired == snapshot.in_force:
        return _sum_by_service(question.plan_in_force)
    then = pose_once_reclaimed(snapshot, decision.desired) or pose_question(snapshot, decision.desired)
    return _sum_by_service(then.plan_in_force)


def _sum_by_service(plan: Plan) -> dict[str, float]:
    return {lack.service: lack.rate_per_second for lack in plan.unserved}


def serves_more(shortfalls: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Returns whether the first plan serves some service better than the other, and none of them worse."""
    gains = _gains(shortfalls, others)
    return bool(gains) and min(gains) > 0


def serves_as_much(shortfalls: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Returns whether the first plan serves no service worse than the other."""
    return min(_gains(shortfalls, others), default=0.0) >= 0


def _gains(shortfalls: Mapping[str, float], others: Mapping[str, float]) -> list[float]:
    pairs = [(shortfalls.get(name, 0.0), others.get(name, 0.0)) for name in {*shortfalls, *others}]
    return [other - lack for lack, other in pairs if abs(other - lack) > LEAST_LACK_SHARE * max(lack, other)]


def _judge_found(snapshot: Snapshot, found: FoundAnswer, around: Snapshot) -> FoundAnswer:
    """Writes an answer around a part of the fleet for all of it."""
    if found.decision is None or found.wanted is None:
        return found
    decision = judge_in_whole_fleet(snapshot, found.decision, around)
    wanted = judge_in_whole_fleet(snapshot, found.wanted, around) or decision
    return replace(found, decision=decision, wanted=wanted)


def _list_shortfalls_in(snapshot: Snapshot, question: Question, found: FoundAnswer) -> dict[str, float] | None:
    return list_shortfalls(snapshot, question, found.decision) if found.decision else None
