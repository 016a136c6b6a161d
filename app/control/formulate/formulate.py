"""Formulates the problem of this moment, under the rules of its tenants, with the jobs whose turn it is."""

from __future__ import annotations

from dataclasses import replace

from app.control.domain.snapshot import Snapshot
from app.control.formulate.pose import pose
from app.control.formulate.question import Question
from app.control.formulate.tenants import apply_tenant_rules
from app.control.jobs import queue_jobs

LEAST_HORIZON_MINUTES = 3.0


def formulate(snapshot: Snapshot) -> Question:
    """The problem of this moment, under the rules of its tenants, with the jobs whose turn it is."""
    queue = queue_jobs(snapshot)
    posed = pose(snapshot, jobs=queue.left)
    problem = queue.weigh(apply_tenant_rules(posed.problem, snapshot, posed.pinned).problem)
    # What has moved four times in an hour will move again in a quarter of one: so long has a move to pay for itself.
    horizon = min(problem.policy.horizon_minutes, max(60 / (1 + snapshot.moved), LEAST_HORIZON_MINUTES))
    if horizon != problem.policy.horizon_minutes:
        problem = replace(problem, policy=replace(problem.policy, horizon_minutes=horizon))
    return replace(posed, problem=problem)
