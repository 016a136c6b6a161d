"""Jobs: training and offline inference on the capacity that services leave (OLTunes' second class of work, Mudi).

`advance_jobs` follows their life through assignments and reports, `queue_jobs` chooses those that go into a problem,
`apply_answer` records what its plan means for them, and `job_status` writes the status of their objects.
"""

from __future__ import annotations

from app.control.jobs import rows
from app.control.jobs.ends import predict_end
from app.control.jobs.life import JobsStep, advance_jobs
from app.control.jobs.order import JobTask, sort_tasks
from app.control.jobs.queue import JobQueue, apply_answer, queue_jobs
from app.control.jobs.speeds import learn_speeds
from app.control.jobs.state import (
    JobNeed,
    JobPhase,
    JobPlace,
    JobState,
    JobWork,
    job_readings,
    list_assigned_places,
    list_swapped_instances,
    read_declared_work,
    work_of,
)
from app.control.jobs.status import job_status
from app.control.jobs.window import Arrivals, GatheringWindow, count_arrivals

__all__ = [
    "Arrivals",
    "GatheringWindow",
    "JobNeed",
    "JobPhase",
    "JobPlace",
    "JobQueue",
    "JobState",
    "JobTask",
    "JobWork",
    "JobsStep",
    "advance_jobs",
    "apply_answer",
    "count_arrivals",
    "job_readings",
    "job_status",
    "learn_speeds",
    "list_assigned_places",
    "list_swapped_instances",
    "predict_end",
    "queue_jobs",
    "read_declared_work",
    "rows",
    "sort_tasks",
    "work_of",
]  # fmt: skip
