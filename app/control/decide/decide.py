"""From the solver's answer to the decision: pure, so that it can be repeated from the record.

What is not worth its churn, what no order of steps leads to and what a mode forbids is held back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from app.control.decide.assigning import assign_plan
from app.control.decide.churn import not_worth_it
from app.control.decide.cordons import draining_gpus, find_reclaimed_gpus, keep_undrainable
from app.control.decide.drafting import find_changed_owners, judge_decision, write_decision
from app.control.decide.resting import resting_changes
from app.control.decide.steady_jobs import keep_jobs_steady
from app.control.domain.decision import Decision, HeldBackChange, PlanningLane, PlanValue, SolverAnswer
from app.control.domain.desired import Desired
from app.control.domain.events import Reason
from app.control.domain.mode import read_modes
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.predict import predict_instances, predict_paces
from app.control.formulate.question import Question
from app.control.formulate.running import running_instances, treat_drains_as_cordons
from app.control.formulate.value import value_plan
from app.control.jobs.queue import queue_jobs
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.keeping import keep_owners
from app.control.rollout.modes import divide_by_mode
from app.control.rollout.ordering.finding import order
from solvers.planners.names import JOINT
from solvers.planning.judge import JudgedPlan, Verdict
from solvers.planning.kept_bound import drop_bound
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.promise import keep

LONGEST_ROLLING = timedelta(minutes=5)  # for which rollouts that follow each other keep cheaper plans waiting


def draft_changes(
    snapshot: Snapshot,
    question: Question,
    answer: SolverAnswer,
    lane: PlanningLane = PlanningLane.FULL,
    reason: str = Reason.CYCLE,
) -> Decision:
    """Drafts the decision of an answer: jobs that would move for next to nothing stay, resting jobs are named."""
    return judge_changes(question, write_changes(snapshot, question, answer, lane, reason))


def write_changes(
    snapshot: Snapshot, question: Question, answer: SolverAnswer, lane: PlanningLane, reason: str
) -> Decision:
    """Writes the same decision, without verdict and value."""
    if answer.plan is not None:
        queue = queue_jobs(snapshot)
        plan = queue.add_resting(keep_jobs_steady(question.problem, answer.plan, queue.units_left))
        answer = replace(answer, plan=plan)
    return write_decision(snapshot, question, answer, lane, reason)


def judge_changes(question: Question, decision: Decision) -> Decision:
    """Returns a decision that was written with the judge's verdict and its value."""
    decision = judge_decision(question, decision)
    return replace(decision, value=value_plan(question.problem, decision.plan, decision.verdict))


def hold_back(snapshot: Snapshot, question: Question, decision: Decision) -> Decision:
    """Returns the decision without what is not worth its churn and what no order of steps leads to.

    What is left is weighed again: if it is no better than the plan in force, it wants what is in force.
    """
    few = (HeldBackChange(name, Reason.TOO_FEW_GPUS, why) for name, why in question.shortages.items())
    decision = replace(decision, held_back=(*decision.held_back, *few))
    is_weighed = question.problem.policy.planner == JOINT  # what another planner wants is not second-guessed by cost
    if is_weighed and (idle := not_worth_it(snapshot, question, decision)):
        jobs_alone = _change_jobs_alone(snapshot, question, decision, idle)
        if jobs_alone is None:
            return keep_in_force(snapshot, question, decision, idle)
        decision = jobs_alone
    desired, rules = decision.desired, read_rules(snapshot.declared)
    if places := draining_gpus(snapshot.nodes):
        reclaimed = find_reclaimed_gpus(snapshot.nodes)
        decision = keep_undrainable(decision, snapshot.assignments, places, rules, reclaimed)
    resting = resting_changes(snapshot, decision.desired)
    found = order(snapshot.assignments, keep_owners(decision.desired, snapshot.assignments, resting), rules)
    stuck = (*resting.values(), *found.stuck)
    if not stuck and found.target == desired:
        return decision
    rest = rejudge(snapshot, decision, found.target, stuck)
    if rest is None:
        return keep_in_force(snapshot, question, decision, *stuck)
    idle = not_worth_it(snapshot, question, rest) if is_weighed else None
    return keep_in_force(snapshot, question, rest, idle) if idle else rest


def _change_jobs_alone(
    snapshot: Snapshot, question: Question, decision: Decision, idle: HeldBackChange
) -> Decision | None:  # fmt: skip
    """Returns the decision's jobs beside services as they are; None if no job gains by that.

    Otherwise a job would wait for as long as a search changes a service to no purpose.
    """
    before = question.plan_in_force
    if {placed.job for placed in decision.plan.jobs} == {placed.job for placed in before.jobs}:
        return None
    desired = assign_plan(snapshot, question, replace(before, jobs=decision.plan.jobs))
    found = rejudge(snapshot, decision, desired, (idle,))
    if found is None or found.verdict is None or found.verdict.cost.job >= question.verdict.cost.job:
        return None
    return found


def rollout_in_progress(snapshot: Snapshot, question: Question, since: datetime | None) -> HeldBackChange | None:
    """Returns that the current rollout is to finish first, as its plan still serves nearly all load; else None.

    In a large fleet one rollout follows another. Where they have done so for long, what saves cost waits no longer; a
    small lack still does, as weights alone answer it.
    """
    if not snapshot.is_rolling or question.falls_far_short:
        return None
    is_long = since is not None and snapshot.at >= since + LONGEST_ROLLING
    if is_long and question.problem.policy.planner == JOINT and not question.falls_short:
        return None
    return HeldBackChange(
        "", Reason.ROLLOUT_UNDER_WAY, f"plan {snapshot.target} is still being rolled out and serves the load"
    )


def rollout_paused(snapshot: Snapshot, question: Question) -> HeldBackChange | None:
    """Returns that a person has paused the rollout, and what is unserved meanwhile: no plan may take its place."""
    if not snapshot.is_paused:
        return None
    message = f"a person has paused plan {snapshot.target}; nothing is planned until it is resumed, aborted or undone"
    left = question.plan_in_force.unserved
    short = ", ".join(f"{each.service} is short of {each.rate_per_second:.4g}/s" for each in left)
    return HeldBackChange("", Reason.ROLLOUT_PAUSED, f"{message}: {short}" if short else message)


def find_modes(snapshot: Snapshot, owners: Collection[str]) -> frozenset[str]:
    """Returns the modes that hold for these services and jobs."""
    modes = read_modes(snapshot.declared, snapshot.is_held)
    return frozenset(modes.find(owner) for owner in owners)


def split_by_mode(snapshot: Snapshot, decision: Decision) -> tuple[Decision, ...]:
    """Splits the decision by mode: what is acted upon, what is proposed, and what is only shown."""
    if decision.desired == snapshot.in_force:
        return ()
    modes, rules = read_modes(snapshot.declared, snapshot.is_held), read_rules(snapshot.declared)
    split = divide_by_mode(decision, snapshot.in_force, modes, rules)
    found = [
        part if part.desired == decision.desired else rejudge(snapshot, part, part.desired, ())
        for part in (split.acted, split.proposed, split.shown)
        if part is not None
    ]
    return tuple(part for part in found if part is not None)


def rejudge(
    snapshot: Snapshot, decision: Decision, desired: Desired, held: Sequence[HeldBackChange]
) -> Decision | None:
    """Returns the decision with this target instead, judged and weighed again; None if the judge refuses it."""
    nodes = treat_drains_as_cordons(snapshot.nodes)
    plan, problem, judged_plan = _judge_now(snapshot, desired)
    verdict = judged_plan.verdict()
    if not verdict.is_right:
        return None
    predicted = predict_instances(problem, judged_plan.residents)  # running lines have no predictions
    certificate = decision.plan.certificate
    if certificate:
        certificate = replace(certificate, cost=verdict.cost)
        if nodes != snapshot.nodes:  # the search knew nothing of the GPUs that are being drained
            certificate = drop_bound(certificate, "GPUs that are being drained may still serve")
    instances = tuple(predicted.get(id(line), line) for line in plan.instances)
    jobs = predict_paces(plan, judged_plan.job_residents)
    changed = replace(decision.plan, instances=instances, jobs=jobs, unserved=plan.unserved, changes=verdict.changes)
    return replace(
        decision,
        plan=replace(changed, certificate=certificate),
        desired=desired,
        held_back=(*decision.held_back, *held),
        services=find_changed_owners(snapshot.in_force, desired),
        verdict=verdict,
        value=_value_once_reclaimed(snapshot, desired) or value_plan(problem, plan, verdict),
    )


def judge_today(snapshot: Snapshot, desired: Desired) -> Verdict:
    """Returns the judge's verdict on a target, as the fleet and the rates are now."""
    return _judge_now(snapshot, desired)[2].verdict()


def pose_question(snapshot: Snapshot, desired: Desired) -> Question:
    """Returns the question of this moment if this target were in force."""
    return formulate(replace(snapshot, in_force=desired, assigned=None, nodes=treat_drains_as_cordons(snapshot.nodes)))


def _judge_now(snapshot: Snapshot, desired: Desired) -> tuple[Plan, Problem, JudgedPlan]:
    question = pose_question(snapshot, desired)
    plan, problem = question.plan_in_force, _count_from_here(snapshot, question.problem)
    return plan, problem, JudgedPlan(problem, plan, keep)


def pose_once_reclaimed(snapshot: Snapshot, desired: Desired) -> Question | None:
    """Returns the question of a target without what nodes under notice carry to their end; None if there are none.

    Otherwise a plan that leaves everything there would look as good as one that moves it in time.
    """
    if not find_reclaimed_gpus(snapshot.nodes):
        return None
    nodes = treat_drains_as_cordons(snapshot.nodes, but_reclaimed=True)
    return formulate(replace(snapshot, in_force=desired, assigned=None, nodes=nodes))


def _value_once_reclaimed(snapshot: Snapshot, desired: Desired) -> PlanValue | None:
    question = pose_once_reclaimed(snapshot, desired)
    if question is None:
        return None
    problem, plan = _count_from_here(snapshot, question.problem), question.plan_in_force
    return value_plan(problem, plan, JudgedPlan(problem, plan, keep).verdict())


def _count_from_here(snapshot: Snapshot, problem: Problem) -> Problem:
    """Returns the problem whose changes are counted from the plan in force, not from the plan that is judged."""
    if problem.state is None:
        return problem
    running, _ = running_instances(snapshot.in_force, problem)
    return replace(problem, state=replace(problem.state, running=running))


def keep_in_force(snapshot: Snapshot, question: Question, decision: Decision, *held: HeldBackChange) -> Decision:
    """Returns the decision to change nothing, with what is held back."""
    return replace(
        decision,
        desired=snapshot.in_force,
        held_back=(*decision.held_back, *held),
        services=(),
        value=question.value_in_force,
    )
