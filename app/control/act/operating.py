"""Carries out operators' requests: returns to an earlier plan, and expires proposals that no longer hold."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from app.control.decide.decide import judge_today, rejudge
from app.control.domain.decision import Decision, PlanningLane, PlanState, SolveOutcome, SolverAnswer
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.snapshot import Snapshot
from app.control.record.planner_store import PlannerStore
from app.control.record.records import read_plan, snapshot_of
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.life import roll_back
from app.control.rollout.proposals import no_longer
from app.store.plans import plan_reads
from solvers.planning.kept_bound import drop_bound
from solvers.planning.plan import Plan

MOST_BROKEN = 3  # rules that a refusal names


def roll_back_plan(store: PlannerStore, snapshot: Snapshot) -> int:
    """Brings back an earlier plan, if requested, as a new one that is judged on today's rates.

    Returns its generation, 0 if nothing was done.
    """
    if not snapshot.is_unwanted:
        return 0
    request = store.database.read(lambda connection: _rollback_request(connection, snapshot.target))
    if request is None:
        return 0
    to, who = request
    earlier = store.database.read(lambda connection: read_plan(connection, to))
    if earlier is None:
        return _note_refusal(store, snapshot, f"plan {to} is no longer stored")
    owners = {manifest.full_name for manifest in snapshot.declared if manifest.kind in ("Service", "Job")}
    order = roll_back(earlier.desired, store.view().assigned, snapshot.nodes, owners, read_rules(snapshot.declared))
    decision = Decision(
        lane=PlanningLane.ROLLBACK,
        plan=_drop_bound(earlier.plan, to),
        desired=snapshot.in_force,
        answer=SolverAnswer(SolveOutcome.SOLVED, earlier.plan),
        reason=Reason.ROLLBACK,
        message=f"{who} asked to return to plan {to}",
        state=PlanState.ROLLING,
    )
    found = rejudge(snapshot, decision, order.target, order.stuck)
    if found is None:
        broken = [str(violation) for violation in judge_today(snapshot, order.target).violations]
        more = f"; and {len(broken) - MOST_BROKEN} more" if len(broken) > MOST_BROKEN else ""
        return _note_refusal(store, snapshot, f"plan {to} breaks rules today: {'; '.join(broken[:MOST_BROKEN])}{more}")
    waits = "plans wait for approval until a person resumes the fleet"
    event = event_of(Reason.ROLLED_BACK, f"{found.message}; {waits}", kind="Plan", name=f"p{snapshot.target}")
    (generation,) = store.record(snapshot, [found], [event])
    return generation


def expire_proposal(store: PlannerStore, snapshot: Snapshot) -> int:
    """Ends the newest proposal if what it was made from no longer holds; returns its generation, or 0."""
    if not snapshot.proposal:
        return 0

    def then(connection: Connection) -> tuple[int, Snapshot] | None:
        generation = plan_reads.newest_waiting(connection)
        recorded = read_plan(connection, generation) if generation else None
        return (recorded.generation, snapshot_of(connection, recorded)) if recorded else None

    found = store.database.read(then)
    why = no_longer(found[1], snapshot) if found else ""
    if found is None or not why:
        return 0
    generation = found[0]
    event = event_of(Reason.PLAN_EXPIRED, why, kind="Plan", name=f"p{generation}", generation=generation)
    store.change_state(generation, PlanState.PROPOSED, PlanState.EXPIRED, why, [event])
    return generation


def _rollback_request(connection: Connection, generation: int) -> tuple[int, str] | None:
    row = plan_reads.read_head(connection, generation)
    wanted = row["asked"].get("rollback") if row else None
    return (int(wanted.get("to") or row["base"] or 0), str(wanted["by"])) if row and wanted else None


def _drop_bound(plan: Plan, generation: int) -> Plan:
    """Returns the plan without the bound and other planners' plans, which were for the fleet and the rates of then."""
    if plan.certificate is None:
        return plan
    reason = f"it goes back to plan {generation}, which was made for the fleet and the rates of then"
    return replace(plan, certificate=replace(drop_bound(plan.certificate, reason), others=()))


def _note_refusal(store: PlannerStore, snapshot: Snapshot, why: str) -> int:
    events: list[NewEvent] = [event_of(Reason.ROLLBACK_REFUSED, why, kind="Plan", name=f"p{snapshot.target}")]
    store.refuse_request(snapshot.target, "rollback", events)
    return 0
