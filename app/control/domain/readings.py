"""Readings of nodes and gateways, as the planner's rooms exchange them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class LoadReading(Protocol):
    """The load of a service in the last seconds."""

    @property
    def rate_per_second(self) -> float: ...

    @property
    def within_slo(self) -> float | None: ...  # share of answers; None where it is unknown


@dataclass(frozen=True, slots=True)
class JobReading:
    """A node's report of a job's instance. A count of 0 means nothing: a starting copy always reports 0."""

    job: str
    instance: str
    node: str
    order: int  # of the report among those of its node
    at: datetime  # by the database's clock
    units: float = 0.0  # done since the job began, as its process counts them: it continues from its last checkpoint
    stage: str = ""
    reason: str = ""  # why it failed, or was not started
    message: str = ""
    saved: float = 0.0  # of the units: a new process would continue from there
    exit_code: int = -1  # of its last process; -1: none has ended, or its code is unknown
    exits: int = 0  # of its processes that ended by themselves, since the node's agent started


@dataclass(frozen=True, slots=True)
class CopyTrial:
    """The answers of an instance on trial since it began to serve."""

    requests: int = 0
    within_percent: float = 100.0  # of its SLO
