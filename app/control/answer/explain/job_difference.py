"""Compares two plans job by job: where each runs, and with what share."""

from __future__ import annotations

from app.control.answer.explain.difference_wire import JobDifferenceWire
from solvers.planning.plan_fields import held_gpus
from solvers.planning.wire import PlanJobWire, PlanLinesWire

WAITS, UNKNOWN = "waits", "not in the plan"


def find_job_differences(before: PlanLinesWire | None, after: PlanLinesWire) -> list[JobDifferenceWire]:
    """Returns the jobs that a plan starts, stops, moves or gives another share; a job that waits says why."""
    old, new = _place_jobs(before), _place_jobs(after)
    reasons = {line["job"]: line["reason"] for line in after["unplaced"]}
    return [
        {"job": name, "before": was, "after": now, "reason": reasons.get(name, "")}
        for name in sorted(old.keys() | new.keys())
        if (was := old.get(name, UNKNOWN)) != (now := new.get(name, UNKNOWN))
    ]


def _place_jobs(plan: PlanLinesWire | None) -> dict[str, str]:
    if plan is None:
        return {}
    return {line["job"]: WAITS for line in plan["unplaced"]} | {line["job"]: _place(line) for line in plan["jobs"]}


def _place(line: PlanJobWire) -> str:
    gpus = ",".join(map(str, held_gpus(line)))
    return f"{line['node']}/{gpus} with {line['smPercent']:g} %"
