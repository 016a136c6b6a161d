"""What a plan changes for a service or a job, as the API spells it; known also where no database is."""

from __future__ import annotations

from typing import TypedDict


class ServiceShapesWire(TypedDict):
    """What a service has in a plan."""

    instances: int
    ratePerSecond: float
    unservedPerSecond: float
    shapes: list[str]


class MovesWire(TypedDict):
    """How many instances of a service a plan starts, stops, changes or keeps."""

    started: int
    stopped: int
    moved: int
    resized: int
    retuned: int
    kept: int


class ServiceDifferenceWire(MovesWire):
    """What a plan changes for a service."""

    service: str
    words: str
    before: ServiceShapesWire
    after: ServiceShapesWire
    reasons: list[str]


class JobDifferenceWire(TypedDict):
    """What a plan changes for a job: where it runs, or that it does not."""

    job: str
    before: str
    after: str
    reason: str
