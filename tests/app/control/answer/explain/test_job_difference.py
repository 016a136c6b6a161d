"""The difference between two plans says of each job where it ran and where it runs."""

from __future__ import annotations

from typing import Any

from app.control.answer.explain.job_difference import find_job_differences


def placed(job: str, gpu: int, share: float = 60.0) -> dict[str, Any]:
    return {"job": job, "node": "n", "gpu": gpu, "smPercent": share, "memoryGib": 1.0, "predicted": {}}


def plan(*jobs: dict[str, Any], unplaced: tuple[dict[str, Any], ...] = ()) -> Any:
    return {"instances": (), "jobs": jobs, "unserved": (), "unplaced": unplaced}


def test_what_stays_is_no_change_and_all_else_is_told() -> None:
    waiting: Any = {"job": "s/waits", "reason": "no GPU has 4 GiB left", "relaxation": ""}
    before = plan(placed("s/same", 0), placed("s/moves", 1), placed("s/waits", 2), placed("s/ends", 3))
    after = plan(placed("s/same", 0), placed("s/moves", 2, 40.0), placed("s/new", 1), unplaced=(waiting,))
    found = find_job_differences(before, after)
    assert {line["job"]: (line["before"], line["after"], line["reason"]) for line in found} == {
        "s/ends": ("n/3 with 60 %", "not in the plan", ""),
        "s/moves": ("n/1 with 60 %", "n/2 with 40 %", ""),
        "s/new": ("not in the plan", "n/1 with 60 %", ""),
        "s/waits": ("n/2 with 60 %", "waits", "no GPU has 4 GiB left"),
    }


def test_against_nothing_each_job_is_new() -> None:
    (line,) = find_job_differences(None, plan(placed("s/a", 0)))
    assert (line["before"], line["after"]) == ("not in the plan", "n/0 with 60 %")
