"""Carries out operators' requests: returns to an earlier plan, and expires proposals that no longer hold."""

from __future__ import annotations

from sqlalchemy import Connection

from app.control.decide.decide import rejudge
from app.control.domain.decision import Decision, PlanningLane, PlanState, RecipeKind, SolveOutcome, SolverAnswer
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.leading import FleetView
from app.control.domain.snapshot import Snapshot
from app.control.record.planner_store import PlannerStore
from app.control.record.records import read_plan, snapshot_of
from app.control.rollout.life import roll_back
from app.control.rollout.proposals import no_longer
from app.control.rollout.rules_of import rules_of
from app.store.plans import plan_reads


def is_rollback_asked(store: PlannerStore) -> bool:
    """Returns whether a rollback of the plan in force was requested and is not answered yet."""

    def is_asked(connection: Connection) -> bool:
        return _rollback_request(connection, plan_reads.in_force(connection)) is not None

    return store.database.read(is_asked)


def roll_back_plan(store: PlannerStore, snapshot: Snapshot, look: FleetView) -> int:
    """Brings back the plan before the one in force, if requested; returns the generation, 0 if nothing was done."""
    if not snapshot.target:
        return 0
    request = store.database.read(lambda connection: _rollback_request(connection, snapshot.target))
    if request is None:
        return 0
    base, who = request
    earlier = store.database.read(lambda connection: read_plan(connection, base))
    if earlier is None:
        return _refused(store, snapshot, f"plan {base}, which came before it, is no longer stored")
    owners = {manifest.full_name for manifest in snapshot.declared if manifest.kind in ("Service", "Job")}
    order = roll_back(earlier.desired, look.assigned, snapshot.nodes, owners, rules_of(snapshot.declared))
    decision = Decision(
        lane=PlanningLane.ROLLBACK,
        plan=earlier.plan,
        desired=snapshot.in_force,
        answer=SolverAnswer(SolveOutcome.SOLVED, earlier.plan, recipe={"kind": RecipeKind.ROLLBACK, "to": base}),
        reason=Reason.ROLLBACK,
        message=f"{who} asked to return to plan {base}",
        state=PlanState.ROLLING,
    )
    found = rejudge(snapshot, decision, order.target, order.stuck)
    if found is None:
        return _refused(store, snapshot, f"plan {base} would break a rule now")
    event = event_of(Reason.ROLLED_BACK, found.message, kind="Plan", name=f"p{snapshot.target}")
    (generation,) = store.record(snapshot, [found], [event])
    return generation


def expire_proposal(store: PlannerStore, snapshot: Snapshot) -> int:
    """Ends the newest proposal if what it was made from no longer holds; returns its generation, or 0."""

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
    wanted = (row or {}).get("asked", {}).get("rollback")
    return (int(row["base"] or 0), str(wanted.get("by", "an operator"))) if row and wanted else None


def _refused(store: PlannerStore, snapshot: Snapshot, why: str) -> int:
    events: list[NewEvent] = [event_of(Reason.ROLLBACK_REFUSED, why, kind="Plan", name=f"p{snapshot.target}")]
    store.refuse_request(snapshot.target, "rollback", events)
    return 0
