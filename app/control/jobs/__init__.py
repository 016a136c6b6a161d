"""Jobs: training and offline inference, on what services leave of GPUs (OLTunes' second class; Mudi's multiplexing).

`lived` is their life as a fold over what nodes were told and say, `queued` which of them go into a problem, `answered`
what its plan means for those that wait, and `said` what their objects say.
"""

from __future__ import annotations

from app.control.jobs import kept
from app.control.jobs.life import Lived, lived, predicted_end, removed
from app.control.jobs.order import Task, in_order
from app.control.jobs.queue import Queued, answered, queued
from app.control.jobs.said import said
from app.control.jobs.state import JobState, Need, Phase, Place, Work, places, readings, work_of, works
from app.control.jobs.window import Arrived, Window, arrived

__all__ = [
    "Arrived", "JobState", "Lived", "Need", "Phase", "Place", "Queued", "Task", "Window",
    "Work", "answered", "arrived", "in_order", "kept", "lived", "places", "predicted_end", "queued",
    "readings", "removed", "said", "work_of", "works",
]  # fmt: skip
