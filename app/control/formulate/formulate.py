"""Formulates the planner's question: the problem of this moment, with tenants' rules and the jobs to place now."""

from __future__ import annotations

from dataclasses import replace

from app.control.domain.snapshot import Snapshot
from app.control.formulate.pose import pose
from app.control.formulate.question import Question
from app.control.formulate.repeated import RepeatedQuestions
from app.control.formulate.tenants import apply_tenant_rules
from app.control.jobs import queue_jobs

_repeated = RepeatedQuestions()


def formulate(snapshot: Snapshot) -> Question:
    """Returns the question of this moment: tenants' rules applied, and only the jobs that may be placed now.

    A fleet of which nothing has changed has its last question again, with what was found out about it.
    """
    return _repeated.formulated(snapshot, _formulate)


def _formulate(snapshot: Snapshot) -> Question:
    queue = queue_jobs(snapshot)
    question = pose(snapshot, jobs=queue.units_left)
    problem = queue.weigh(apply_tenant_rules(question.problem, snapshot, question.pinned).problem)
    return replace(question, problem=problem)
