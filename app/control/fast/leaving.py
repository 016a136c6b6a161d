"""Answers a notice of reclaim at once: the least change moves what runs on the node, and the next cycle refines it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from app.control.decide.cordons import find_reclaimed_gpus
from app.control.decide.decide import draft_changes, hold_back, split_by_mode
from app.control.decide.least_change import follow_rates
from app.control.domain.decision import Decision, HeldBackChange, PlanningLane, PlanState, SolveOutcome
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.ports import FollowingSolver
from app.control.domain.snapshot import Snapshot
from app.control.domain.times import start_seconds
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from solvers.planning.kept_bound import KeptBound, add_bound
from solvers.planning.plan import Plan

SECONDS = 2.0  # for the least change: two minutes are left


@dataclass(frozen=True, slots=True)
class DraftedLeaving:
    """The instances that leave at once, if any do, and those that cannot leave."""

    decision: Decision | None = None
    held_back: tuple[HeldBackChange, ...] = ()


def draft_leaving(snapshot: Snapshot, solver: FollowingSolver, kept_bound: KeptBound | None) -> DraftedLeaving:
    """Returns the part of the least change that is carried out at once; none if nothing can leave, or no mode lets it.

    The judge refuses a change that breaks a rule; then a full cycle finds another.
    """
    if snapshot.is_paused or not uses_reclaimed_gpus(snapshot):
        return DraftedLeaving()
    question = formulate(snapshot)
    answer = solver.follow(*follow_rates(question), seconds=SECONDS)
    if answer.plan is None:
        return DraftedLeaving()
    plan = place_leaving_jobs(snapshot, question, answer.plan)
    answer = replace(answer, plan=plan)
    if own := plan.certificate:
        certificate = add_bound(own, question.problem, kept_bound, snapshot.at)
        answer = replace(answer, plan=replace(plan, certificate=certificate))
    decision = draft_changes(snapshot, question, answer, PlanningLane.FAST, Reason.RECLAIM_NOTICE)
    if decision.answer.outcome is SolveOutcome.WRONG:
        return DraftedLeaving()
    found = hold_back(snapshot, question, decision)
    return DraftedLeaving(_act(snapshot, found), found.held_back)


def place_leaving_jobs(snapshot: Snapshot, question: Question, plan: Plan) -> Plan:
    """Returns the plan with the jobs that leave the nodes placed elsewhere; where nothing has room, they wait."""
    places = find_reclaimed_gpus(snapshot.nodes)
    leaving = {
        line.owner
        for node, wanted in snapshot.in_force.items()
        for line in wanted.instances
        if line.job and (node, line.gpu) in places
    }
    running = {placed.job for placed in plan.jobs}
    if not (leaving - running) & question.problem.jobs.keys():
        return plan
    from solvers.planning.jobs import place_jobs  # compiled loops; rarely needed here

    jobs = {name: job for name, job in question.problem.jobs.items() if name in leaving | running}
    found = place_jobs(replace(question.problem, jobs=jobs), plan.instances, work=0)
    if not running <= {placed.job for placed in found.jobs}:
        return plan  # no job gives way in haste
    placed = {job.job for job in found.jobs}
    unplaced = tuple(line for line in plan.unplaced if line.job not in placed)
    return replace(plan, instances=found.instances, jobs=found.jobs, unplaced=unplaced)


def uses_reclaimed_gpus(snapshot: Snapshot) -> bool:
    """Returns whether the plan in force has something on a node that will be reclaimed."""
    places = find_reclaimed_gpus(snapshot.nodes)
    return any(
        (node, instance.gpu) in places for node, wanted in snapshot.in_force.items() for instance in wanted.instances
    )


def find_shortfalls(snapshot: Snapshot, held_back: Iterable[HeldBackChange]) -> Iterator[NewEvent]:
    """Yields an event for each service that loses capacity: nothing else can serve it, or copies start too slowly."""
    reported = set()
    places = find_reclaimed_gpus(snapshot.nodes)
    nodes: dict[str, list[str]] = {}
    for node, wanted in sorted(snapshot.in_force.items()):
        for owner in sorted({line.owner for line in wanted.instances if line.service and (node, line.gpu) in places}):
            nodes.setdefault(owner, []).append(node)
    for change in held_back:
        if change.reason == Reason.RECLAIM_SHORT and change.service not in reported:
            reported.add(change.service)
            on = " and ".join(nodes.get(change.service, ()))
            message = f"without node {on}, {change.message}"
            yield event_of(Reason.RECLAIM_SHORT, message, kind="Service", name=change.service)
    starts = start_seconds(snapshot.declared)
    for owner, its_nodes in sorted(nodes.items()):
        deadlines = {name: deadline for name in its_nodes if (deadline := snapshot.nodes[name].reclaimed_at)}
        node, deadline = min(deadlines.items(), key=lambda item: (item[1], item[0]))
        left = max(0.0, (deadline - snapshot.at).total_seconds())
        if owner not in reported and starts.get(owner, 0.0) > left:
            time_left = f"node {node} is reclaimed in {left:.0f} s"
            message = f"its copies take {starts[owner]:g} s to start, and {time_left}"
            yield event_of(Reason.RECLAIM_SHORT, message, kind="Service", name=owner)


def _act(snapshot: Snapshot, decision: Decision) -> Decision | None:
    parts = split_by_mode(snapshot, decision)
    return parts[0] if parts and parts[0].state is PlanState.ROLLING else None
