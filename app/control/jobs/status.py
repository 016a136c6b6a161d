"""Writes the status of a job's object: phase, progress, predicted end, conditions."""

from __future__ import annotations

from datetime import datetime

from app.control.jobs.ends import predict_end, soonest_end
from app.control.jobs.state import WAITING, JobPhase, JobState, JobWork
from app.manifests.model import Free


def job_status(state: JobState, work: JobWork, now: datetime) -> Free:
    """Returns the status of a job's object; times in RFC 3339, without unknown values."""
    end = predict_end(state, work, now)
    found: dict[str, object] = {
        "phase": state.phase.value,
        "progress": round(min(1.0, state.done / work.units), 6),
        f"{work.unit}Done": state.done,
        f"{work.unit}PerSecond": round(state.per_second, 6),
        "failures": state.failures,
        "preemptions": state.preemptions,
        f"{work.unit}Repeated": state.repeated,
        f"{work.unit}Saved": state.saved,
        f"{work.unit}Unsaved": state.unsaved,
        "restarts": state.restarts,
        "retriesLeft": max(0, work.retries - state.failures),
        "since": _text(state.since),
        "conditions": conditions(state, work, now),
    }
    for name, moment in (
        ("predictedEnd", end),
        ("startedAt", state.first_started_at),
        ("finishedAt", state.finished_at),
        ("retryAt", state.need.retry_at if state.phase in WAITING else None),
    ):
        if moment is not None:
            found[name] = _text(moment)
    if state.exit_code is not None:
        found["exitCode"] = state.exit_code
    if state.phase in (JobPhase.STARTING, JobPhase.RUNNING):
        found["node"] = state.node
    if state.learned:
        found[f"learned{work.unit.capitalize()}PerSecond"] = dict(state.learned)
    if state.is_swapped:
        found["swappedOn"] = state.node
    return found


def conditions(state: JobState, work: JobWork, now: datetime) -> list[dict[str, str]]:
    """Returns the conditions Placed, Finished and, for a job with a deadline, OnTime."""
    need = state.need
    if state.phase in WAITING:
        helps = f"what would place it: {need.relaxation}" if need.relaxation else ""
        why = "; ".join(part for part in (need.reason, helps) if part)
        reason = "Preempted" if state.phase is JobPhase.PREEMPTED else "Queued"
        if state.is_swapped:
            reason, why = "Swapped", f"its process waits in the host memory of {state.node}{f'; {why}' if why else ''}"
        placed = ("False", reason, why or "it waits for room on a GPU")
    elif state.phase is JobPhase.FAILED:
        placed = ("False", "Failed", state.message)
    elif state.phase is JobPhase.FINISHED:
        placed = ("False", "Finished", "it needs no GPU any more")
    else:
        placed = (
            "True",
            state.phase.value.capitalize(),
            state.message if state.is_down else f"it runs on {state.node}",
        )
    over = {JobPhase.FINISHED: ("True", "Done"), JobPhase.FAILED: ("False", "Failed")}.get(
        state.phase, ("False", "NotYet")
    )
    found = [
        _condition("Placed", *placed),
        _condition("Finished", *over, f"{state.done:g} of {work.units:g} {work.unit}"),
    ]
    if work.deadline is not None:
        found.append(_condition("OnTime", *_judge_deadline(state, work, now)))
    return found


def _judge_deadline(state: JobState, work: JobWork, now: datetime) -> tuple[str, str, str]:
    assert work.deadline is not None
    deadline = _text(work.deadline)
    if state.phase is JobPhase.FINISHED and state.finished_at:
        late = state.finished_at > work.deadline
        return ("False" if late else "True", "Late" if late else "InTime", f"the deadline was {deadline}")
    end = predict_end(state, work, now) or soonest_end(state, work, now)
    message = f"its deadline is {deadline}"
    if end:
        message = f"it is predicted to end at {_text(end)}; {message}"
    return ("False", "Late", message) if state.is_late else ("True", "InTime", message)


def _condition(type_: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": message[:500]}


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
