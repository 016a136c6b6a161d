"""Writes the least change beside the best plan on the wire: what each point costs, moves and saves, and why."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.answer.explain.difference import find_differences, is_changed
from app.control.answer.explain.why_changed import ChangeFacts
from app.control.answer.whatif.curve import MovePoint
from app.control.answer.whatif.wire import MovePointWire
from app.control.domain.causes import ChangeCauses
from app.control.formulate.question import Question
from solvers.planning.wire import PlanBodyWire, changes_wire, to_json

MOST_SERVICES = 200


def write_curve(
    points: Sequence[MovePoint], today: Question, question: Question, causes: ChangeCauses
) -> list[MovePointWire]:
    """Returns the points on the wire, each with what it changes of what runs today."""
    running = to_json(today.plan_in_force, today.problem)
    known = points[0].plan.certificate if points else None
    least = known.cost.resource if known else 0.0
    return [_write_point(point, question, running, causes, least) for point in points]


def _write_point(
    point: MovePoint, question: Question, running: PlanBodyWire, causes: ChangeCauses, least: float
) -> MovePointWire:
    plan = point.plan
    assert plan.certificate
    cost = plan.certificate.cost
    facts = ChangeFacts(causes, (question.verdict.cost.resource, cost.resource))
    differences = find_differences(running, to_json(plan, question.problem), facts=facts)
    return {
        "most": point.most,
        "moved": sorted(point.moved),
        "resourceCost": cost.resource,
        "unservedPerSecond": sum(line.rate_per_second for line in plan.unserved),
        "savesPerHour": least - cost.resource,
        "churnCost": cost.churn,
        "changes": changes_wire(plan.changes),
        "services": [line for line in differences if is_changed(line)][:MOST_SERVICES],
    }
