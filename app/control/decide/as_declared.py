"""Tells whether the plan in force serves everything as manifests say by now."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as replace_struct

from app.control.decide.assigning import assign_plan
from app.control.decide.cordons import draining_gpus
from app.control.decide.drafting import find_changed_owners
from app.control.domain.desired import Desired
from app.control.domain.snapshot import Snapshot
from app.control.formulate.causes import find_edited
from app.control.formulate.question import Question


def serves_as_declared(snapshot: Snapshot, question: Question) -> bool:
    """Returns whether nothing lacks, nothing is drained, and no manifest asks for other assignments."""
    if not snapshot.in_force or question.falls_short or draining_gpus(snapshot.nodes):
        return False
    as_declared = assign_plan(snapshot, question, question.plan_in_force)
    return not find_changed_owners(snapshot.in_force, _keep_urgency(as_declared, snapshot.in_force))


def answers_edit(snapshot: Snapshot, question: Question) -> bool:
    """Returns whether an edited manifest is why the plan in force has to change: what it lacks, or how it runs."""
    if not question.falls_short and serves_as_declared(snapshot, question):
        return False
    edited = find_edited(snapshot, question)
    return not edited.isdisjoint(question.needing) if question.falls_short else bool(edited)


def _keep_urgency(desired: Desired, before: Desired) -> Desired:
    """Returns the assignments with jobs as urgent as before: that grows with time, and asks for no other plan."""
    urgency = {line.id: line.priority for wanted in before.values() for line in wanted.instances if line.job}
    return {
        node: replace(
            wanted,
            instances=tuple(
                replace_struct(line, priority=urgency[line.id]) if line.id in urgency else line
                for line in wanted.instances
            ),
        )
        for node, wanted in desired.items()
    }
