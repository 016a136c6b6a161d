"""Replays a recorded decision offline: steps are counted, so the result is the same on any machine.

The record says after how many steps a search ended, by its deadline or by a crash, so a replay never waits for time.
The bound is not computed again: another process finds it, and it does not change the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol

import msgspec
from sqlalchemy import Connection

from app.control.decide.around import asked_about, in_whole_fleet
from app.control.decide.batch_drafts import BatchContext, batches_again
from app.control.decide.decide import draft_changes, hold_back, split_by_mode
from app.control.decide.fallback import fallback_again
from app.control.decide.goal import kept_again
from app.control.decide.least_change import follow_rates
from app.control.decide.shifting import shifted_again
from app.control.domain.decision import Decision, PlanningLane, RecipeKind, SolveOutcome, SolverAnswer
from app.control.domain.desired import NodeDesired
from app.control.domain.ports import BatchMaker
from app.control.domain.snapshot import Snapshot
from app.control.fast import CapacityNeed, StepTrigger
from app.control.fast.base import step_base
from app.control.fast.leaving import place_leaving_jobs
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.record.records import read_plan, snapshot_of
from app.control.solve.versions import other_versions
from solvers.planning.plan import Certificate, Plan
from solvers.planning.problem import Problem

SECONDS = 3600.0  # a guard against a fault: a replay counts steps and not time


class ReplayRefused(Exception):
    """This decision cannot be replayed here; the message says why."""


class ReplaySolver(BatchMaker, Protocol):
    """A solver that follows recipes."""

    def repeat(self, problem: Problem, recipe: Mapping[str, Any], *, seconds: float) -> SolverAnswer: ...

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer: ...

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer: ...


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that a decision was made from, and the decision."""

    generation: int
    lane: PlanningLane
    outcome: SolveOutcome
    snapshot: Snapshot
    recipe: dict[str, Any]
    versions: dict[str, str]
    plan: Plan | None = None
    desired: dict[str, NodeDesired] | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay: identical, or the first difference."""

    is_identical: bool
    difference: str = ""
    message: str = ""


def replay(record: Record, solver: ReplaySolver) -> Replayed:
    """Formulates, solves, drafts and holds back as the planner did; ReplayRefused if that would prove nothing."""
    others = other_versions(record.versions)
    if others:
        raise ReplayRefused(f"plan {record.generation} was made by other versions: {'; '.join(others)}")
    if record.plan is None:
        return Replayed(True, message=f"the cycle made no plan ({record.outcome}), as the record says")
    kind = record.recipe.get("kind", "")
    question = formulate(record.snapshot)
    if kind == RecipeKind.SOLVE:
        decision = _repeated(record, question, solver)
    elif kind == RecipeKind.FOLLOW:
        decision = _followed_again(record, question, solver)
    elif kind == RecipeKind.ADD:
        decision = _added_again(record, solver)
    elif kind == RecipeKind.QUICKEN:
        decision = _quickened_again(record, question, solver)
    else:
        raise ReplayRefused(f"no solver made plan {record.generation}: its lane is {record.lane}")
    differences = [
        _difference(record, record.plan, part) for part in split_by_mode(record.snapshot, decision) or (decision,)
    ]
    return Replayed("" in differences, "" if "" in differences else differences[0])


def _difference(record: Record, plan: Plan, decision: Decision) -> str:
    found = difference(_unbounded(plan), _unbounded(decision.plan), "plan")
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
        dict(recorded.recipe), dict(recorded.versions), recorded.plan, dict(recorded.desired),
    )  # fmt: skip


def to_json(record: Record) -> bytes:
    """Encodes a record for another machine."""
    return msgspec.json.encode(record, order="deterministic")


def from_json(body: bytes) -> Record:
    """Decodes a record; ReplayRefused if it is malformed."""
    try:
        return msgspec.json.decode(body, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReplayRefused(f"this is not a record of a decision: {error}") from None


def _repeated(record: Record, question: Question, solver: ReplaySolver) -> Decision:
    around, asked = _asked(record, question)
    answer = solver.repeat(asked.problem, record.recipe, seconds=SECONDS)
    return _decided(record, question, around, asked, answer, solver)


def _followed_again(record: Record, question: Question, solver: ReplaySolver) -> Decision:
    around, asked = _asked(record, question)
    answer = solver.follow(*follow_rates(asked), seconds=SECONDS)
    if record.lane is PlanningLane.FAST and answer.plan is not None:
        answer = replace(answer, plan=place_leaving_jobs(around, asked, answer.plan))
    return _decided(record, question, around, asked, answer, solver)


def _added_again(record: Record, solver: ReplaySolver) -> Decision:
    found = fallback_again(record.snapshot, record.recipe, solver, "")
    if found is None:
        raise ReplayRefused(f"plan {record.generation} cannot be replayed: nothing is added now")
    return found


def _asked(record: Record, question: Question) -> tuple[Snapshot, Question]:
    """Returns what the plan was searched for: without the GPUs where steps had failed, if the recipe says so."""
    around = asked_about(record.snapshot, record.recipe)
    return around, question if around is record.snapshot else formulate(around)


def _decided(
    record: Record, question: Question, around: Snapshot, asked: Question, answer: SolverAnswer, solver: ReplaySolver
) -> Decision:
    if answer.plan is None:
        raise ReplayRefused(f"plan {record.generation} cannot be replayed: {answer.message}")
    decision = draft_changes(around, asked, answer, lane=record.lane)
    decision = shifted_again(around, asked, decision, record.recipe, solver, seconds=SECONDS)
    decision = hold_back(around, asked, decision)
    if around is not record.snapshot:
        decision = in_whole_fleet(record.snapshot, decision, around) or decision
    return _with_batches(record, question, decision, solver)


def _with_batches(record: Record, question: Question, decision: Decision, solver: ReplaySolver) -> Decision:
    decision = kept_again(record.snapshot, question, decision, record.recipe)
    return batches_again(BatchContext(record.snapshot, question, decision, SECONDS), record.recipe, solver)


def _quickened_again(record: Record, question: Question, solver: ReplaySolver) -> Decision:
    recipe = record.recipe
    base = step_base(record.snapshot, question)
    calls = [
        CapacityNeed(name, StepTrigger.LOAD_ROSE, rate, least, "") for name, (rate, least) in recipe["calls"].items()
    ]
    as_recorded = _RecordedSolver(solver, list(recipe["followed"]))
    quick = base.find_step(calls, as_recorded, strict=recipe["strict"], seconds=SECONDS, elsewhere={})
    if quick is None:
        raise ReplayRefused(f"plan {record.generation} cannot be replayed: no quick step helps")
    held = base.elsewhere  # the calls on record are without it
    quick = replace(quick, rates={name: rate + held.get(name, 0.0) for name, rate in quick.rates.items()})
    return base.decide(quick, record.snapshot.at)


class _RecordedSolver:
    """A solver that fails where it failed in the record."""

    def __init__(self, solver: ReplaySolver, outcomes: list[str]) -> None:
        self._solver = solver
        self._outcomes = outcomes

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        outcome = SolveOutcome(self._outcomes.pop(0)) if self._outcomes else SolveOutcome.SOLVED
        if outcome is not SolveOutcome.SOLVED:
            return SolverAnswer(outcome)
        return self._solver.follow(problem, plan, rates, seconds=seconds)


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


def _difference_of_maps(then: Mapping[Any, Any], now: Mapping[Any, Any], where: str) -> str:
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


def _unbounded(plan: Plan) -> Plan:
    """Returns the plan without bound, method and seconds, which a replay does not reproduce."""
    known = plan.certificate
    return replace(plan, certificate=Certificate(known.cost, None, "", known.work, 0.0) if known else None)
