"""Compares the plan in force with the baselines once per hour, from its record, and stores the savings."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from app.control.answer.savings.baselines import costs, plan_costs
from app.control.domain.leading import Deposed
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from app.control.record.planner_store import PlannerStore
from app.control.record.records import RecordedPlan, read_plan, snapshot_of
from app.store.database import lease
from app.store.money import savings
from app.store.money.savings import Due, Saving

MOST_PLANS = 3  # in one turn; the next turns compare the rest
NANO = 10**9


def record_savings(store: PlannerStore) -> int:
    """Records savings up to the last hour that is over; returns how many hours were added."""
    if not store.epoch:
        return 0
    known: dict[int, Sequence[Saving]] = {}
    hours = 0
    for due in store.database.read(savings.due_hours):
        if due.generation not in known:
            if len(known) == MOST_PLANS:
                break
            known[due.generation] = _of_plan(store, due)
        _write(store, due, known[due.generation])
        hours += 1
    return hours


def compare_plan(snapshot: Snapshot, recorded_plan: RecordedPlan) -> list[Saving]:
    """Computes what a recorded plan and the baselines cost each tenant per hour for what the plan serves."""
    problem = formulate(snapshot).problem
    services = problem.services.keys()
    instances = tuple(
        line for line in recorded_plan.plan.instances if line.service in services and line.node in problem.nodes
    )
    plan = type(recorded_plan.plan)(instances)
    paid, others = plan_costs(problem, plan), costs(problem, plan)
    return [
        Saving(tenant, _nano(paid[tenant]), *(_nano(by.get(tenant, 0.0)) for by in others.values()))
        for tenant in sorted(paid)
    ]


def _of_plan(store: PlannerStore, due: Due) -> Sequence[Saving]:
    def read(connection: Connection) -> tuple[Sequence[Saving], tuple[Snapshot, RecordedPlan] | None]:
        before = savings.last_savings(connection, due.generation)
        recorded = None if before else read_plan(connection, due.generation)
        return before, (snapshot_of(connection, recorded), recorded) if recorded else None

    before, found = store.database.read(read)
    return compare_plan(*found) if found else before


def _write(store: PlannerStore, due: Due, rows: Sequence[Saving]) -> None:
    epoch = store.epoch

    def write(connection: Connection) -> None:
        if not lease.is_newest(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        savings.keep(connection, due, rows)

    store.database.write(write)


def _nano(per_hour: float) -> int:
    return round(per_hour * NANO)
