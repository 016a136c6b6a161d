"""Counts the time of steps by their nodes' reports: only a report can show that a step is late or has failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.control.domain.desired import FleetStatus
from app.control.domain.snapshot import SILENT_SECONDS
from app.control.rollout.rules import LaggingNode, Leaving, PendingStep, RolloutRules

NOTED_SECONDS = 10.0  # a step's state need not change with every report


def last_report(node: str, observed: FleetStatus, now: float) -> float:
    """Returns when the node last reported; now if it never did, so that steps there end as well."""
    return min(now, observed.reported_at.get(node, now))


def is_current(node: str, observed: FleetStatus) -> bool:
    """Returns whether the node has applied its last assignment."""
    return observed.generations.get(node, 0) >= observed.assigned_generations.get(node, 0)


def forgive_silence(step: PendingStep, node: str, observed: FleetStatus, rules: RolloutRules) -> PendingStep:
    """Returns the step, which begins again when its node reports after a silence, for a few times."""
    reported_at = observed.reported_at.get(node, 0.0)
    since_last = reported_at - max(step.since, step.reported_at)
    if since_last > SILENT_SECONDS and step.silences < rules.most_silences:
        return replace(step, since=reported_at, held_since=0.0, reported_at=reported_at, silences=step.silences + 1)
    return replace(step, reported_at=reported_at) if since_last >= NOTED_SECONDS else step


def find_lagging(before: Mapping[str, LaggingNode], observed: FleetStatus, now: float) -> dict[str, LaggingNode]:
    """Returns the nodes that have yet to apply their last assignment, and since when they have applied nothing."""
    found: dict[str, LaggingNode] = {}
    for node in observed.assigned_generations:
        if node not in observed.lost and not is_current(node, observed):
            applied, known = observed.generations.get(node, 0), before.get(node)
            # To report an older one again is no progress.
            found[node] = known if known and applied <= known.generation else LaggingNode(applied, now)
    return found


def is_awaited(
    node: str, lagging: Mapping[str, LaggingNode], observed: FleetStatus, rules: RolloutRules, now: float
) -> bool:
    """Returns whether the node is silent or is about to apply its last assignment.

    A lost node is not, nor is one that goes on reporting and applies nothing.
    """
    if node in observed.lost:
        return False
    behind = lagging.get(node)
    is_about_to = behind is not None and last_report(node, observed, now) - behind.since < rules.least_seconds
    return is_about_to or node in observed.silent


def find_overdue(
    leaving: Mapping[str, Leaving], observed: FleetStatus, rules: RolloutRules, now: float
) -> tuple[dict[str, Leaving], tuple[str, ...]]:
    """Returns what leaves, and a message about each copy that is not waited for from now on."""
    found, messages = dict(leaving), []
    for id_, gone in sorted(leaving.items()):
        if now - gone.since >= rules.leaving_seconds and not gone.is_overdue:
            found[id_] = replace(gone, is_overdue=True)
            why = _why_it_stays(id_, gone, observed)
            messages.append(f"{id_} on {gone.node}/{gone.instance.gpu}: {why} after {now - gone.since:.0f} s")
    return found, tuple(messages)


def _why_it_stays(id_: str, gone: Leaving, observed: FleetStatus) -> str:
    if gone.node in observed.silent:
        return "its node does not report"
    if gone.waits_for:
        return f"{gone.waits_for}; it is still there"
    if not is_current(gone.node, observed):
        return "its node has not applied its assignment"
    status = observed.instances.get(id_)
    return f"it is still {status.stage or 'there'}" if status else "it is still there"
