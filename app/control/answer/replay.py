"""Replays a recorded decision offline: it is made again by the same functions, from the same snapshot.

The record says after how many steps each search ended, by its deadline or by a crash, so a replay never waits for time.
The bound is not computed again: another process finds it, and it does not change the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace

import msgspec
from sqlalchemy import Connection

from app.control.decide.decide import split_by_mode
from app.control.decide.deciding import Asking, CycleBudget, decide, fall_back, pose_moment
from app.control.domain.decision import Decision, Draft, PlanningLane, SolveOutcome, SolverOrder
from app.control.domain.desired import NodeDesired
from app.control.domain.snapshot import Snapshot
from app.control.fast.base import step_base
from app.control.fast.drafting import draft_step, needs_of
from app.control.fast.leaving import draft_leaving
from app.control.formulate.formulate import formulate
from app.control.record.records import read_plan, snapshot_of
from app.control.solve.recorded import OtherOrder, RecordedSolver, RepeatingSolver
from app.control.solve.versions import other_versions
from app.manifests.model import Fields
from solvers.planning.plan import Certificate, Plan


class ReplayRefused(Exception):
    """This decision cannot be replayed here; the message says why."""


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that a decision was made from, and the decision."""

    generation: int
    lane: PlanningLane
    outcome: SolveOutcome
    snapshot: Snapshot
    drafts: tuple[Draft, ...]
    versions: dict[str, str]
    plan: Plan | None = None
    desired: dict[str, NodeDesired] | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay: identical, or the first difference."""

    is_identical: bool
    difference: str = ""
    message: str = ""


def replay(record: Record, solver: RepeatingSolver) -> Replayed:
    """Decides again as the planner did, with the same answers of solvers; ReplayRefused if that would prove nothing."""
    others = other_versions(record.versions)
    if others:
        raise ReplayRefused(f"plan {record.generation} was made by other versions: {'; '.join(others)}")
    if record.plan is None:
        return Replayed(True, message=f"the cycle made no plan ({record.outcome}), as the record says")
    if record.lane is PlanningLane.ROLLBACK:
        raise ReplayRefused(f"no solver made plan {record.generation}: its lane is {record.lane}")
    if not record.drafts and not record.snapshot.calls:
        raise ReplayRefused(f"the drafts of plan {record.generation} are not on record")
    try:
        decision = _decide_again(record, RecordedSolver(solver, record.drafts))
    except OtherOrder as other:
        return Replayed(False, str(other))
    if decision is None:
        return Replayed(False, "nothing is decided now")
    parts = split_by_mode(record.snapshot, decision) or (decision,)
    differences = [_difference(record, record.plan, part) for part in parts]
    return Replayed("" in differences, "" if "" in differences else differences[0])


def _decide_again(record: Record, solver: RecordedSolver) -> Decision | None:
    snapshot = record.snapshot
    if record.lane is PlanningLane.FAST:
        if not snapshot.calls:
            return draft_leaving(snapshot, solver, None).decision
        step = draft_step(step_base(snapshot, formulate(snapshot)), needs_of(snapshot), solver, snapshot.at, None)
        return step.decision if step else None
    moment, asking = pose_moment(snapshot), Asking(solver, CycleBudget(), record.lane)
    if record.drafts and record.drafts[0].order is SolverOrder.ADD:  # the solver had failed a moment before
        return fall_back(moment, SolveOutcome.CRASHED, asking)
    return decide(moment, asking).decision


def _difference(record: Record, plan: Plan, decision: Decision) -> str:
    found = difference(_drop_bound(plan), _drop_bound(decision.plan), "plan")
    if not found and record.desired is not None:
        found = difference(record.desired, dict(decision.desired), "desired")
    return found


def record_of(connection: Connection, generation: int) -> Record | None:
    """Returns the record of a plan; None where the plan is unknown."""
    recorded = read_plan(connection, generation)
    if recorded is None:
        return None
    return Record(
        generation, PlanningLane(recorded.lane), SolveOutcome(recorded.outcome), snapshot_of(connection, recorded),
        recorded.drafts, dict(recorded.versions), recorded.plan, dict(recorded.desired),
    )  # fmt: skip


def write_record(record: Record) -> bytes:
    """Encodes a record for another machine."""
    return msgspec.json.encode(record, order="deterministic")


def read_record(body: bytes) -> Record:
    """Decodes a record; ReplayRefused if it is malformed."""
    try:
        return msgspec.json.decode(body, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReplayRefused(f"this is not a record of a decision: {error}") from None


def difference(then: object, now: object, where: str) -> str:
    """Returns the first place where two values differ, and how; nothing where they are equal."""
    if then == now:
        return ""
    found = ""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        found = _difference_of_maps(then, now, where)
    elif isinstance(then, tuple) and isinstance(now, tuple):
        found = _difference_of_tuples(then, now, where)
    elif type(then) is type(now):
        parts = (difference(getattr(then, name), getattr(now, name), f"{where}.{name}") for name in _names(then))
        found = next(filter(None, parts), "")
    return found or f"{where}: {then!r} on record, {now!r} now"


def _difference_of_maps(then: Fields, now: Fields, where: str) -> str:
    for key in sorted(then.keys() | now.keys()):
        if key not in then or key not in now:
            return f"{where}: {key} is {'new' if key in now else 'gone'}"
        if found := difference(then[key], now[key], f"{where}.{key}"):
            return found
    return ""


def _difference_of_tuples(then: tuple[object, ...], now: tuple[object, ...], where: str) -> str:
    for at, (before, after) in enumerate(zip(then, now, strict=False)):
        if found := difference(before, after, f"{where}[{at}]"):
            return found
    return f"{where}: {len(then)} on record, {len(now)} now"


def _names(value: object) -> tuple[str, ...]:
    if is_dataclass(value):
        return tuple(field.name for field in fields(value))
    return tuple(getattr(value, "__struct_fields__", ()))


def _drop_bound(plan: Plan) -> Plan:
    """Returns the plan without bound, method and seconds, which a replay does not reproduce."""
    known = plan.certificate
    return replace(plan, certificate=Certificate(known.cost, None, "", known.work, 0.0) if known else None)
