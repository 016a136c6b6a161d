"""What nodes and gateways report, as the planner's rooms hand it on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class LoadReading(Protocol):
    """What the last seconds of one service were like."""

    @property
    def rate_per_second(self) -> float: ...

    @property
    def within_slo(self) -> float | None: ...  # share of answers; None where nobody knows


@dataclass(frozen=True, slots=True)
class JobReading:
    """What a node said of a job's instance. A count of 0 says nothing: a copy that comes up has no other."""

    job: str
    instance: str
    node: str
    order: int  # of the report among its node's
    at: datetime  # by the database's clock
    units: float = 0.0  # done since the job began, as its process counts: it goes on from what it has saved
    stage: str = ""
    reason: str = ""  # why it fell, or is not started
    message: str = ""


@dataclass(frozen=True, slots=True)
class CopyTrial:
    """How an instance has answered since it serves."""

    requests: int = 0
    within_percent: float = 100.0  # of its SLO
