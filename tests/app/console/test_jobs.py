"""The list of jobs says how far each is, what it would lose, and how its last process ended."""

from __future__ import annotations

from app.console.jobs import job_lines


def test_a_running_job_shows_what_it_would_lose_and_how_its_last_process_ended() -> None:
    status = {"phase": "running", "node": "n1", "progress": 0.5, "stepsUnsaved": 40.0, "restarts": 2, "retriesLeft": 3}
    (line,) = job_lines([("lab/tune", {**status, "exitCode": 137})])
    assert (line.unsaved, line.node, line.restarts, line.retries_left, line.exit_code) == (
        "40 steps",
        "n1",
        2,
        "3",
        "137",
    )


def test_a_job_that_waits_is_on_no_node_and_one_just_declared_has_no_figures() -> None:
    waits, new = job_lines([("lab/a", {"phase": "preempted", "node": "n1", "requestsUnsaved": 0}), ("lab/b", {})])
    assert (waits.node, waits.unsaved) == ("", "")
    assert (new.phase, new.progress, new.exit_code) == ("declared", None, "")
