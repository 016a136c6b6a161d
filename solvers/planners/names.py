"""The names of planners, as Policy.planner has them."""

from __future__ import annotations

JOINT = "joint"
HETSEV = "hetsev"
MUDI = "mudi"
MORAK = "morak"
PLANNERS = (
    JOINT,
    HETSEV,
    MUDI,
    MORAK,
)
HPA = "hpa"
HPA_CHEAPEST = "hpa-cheapest"
BASELINES = (HPA, HPA_CHEAPEST)  # what planners are compared with; a policy cannot name them


class UnknownPlanner(ValueError):
    """A name that no planner has; the message lists those that there are."""

    def __init__(self, name: str) -> None:
        super().__init__(f"planner {name!r} is unknown; allowed: {', '.join(PLANNERS)}")
