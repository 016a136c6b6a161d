"""The names of planners, as Policy.planner has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

JOINT = "joint"
HETSEV = "hetsev"
MUDI = "mudi"
INSS = "inss"
MORAK = "morak"
OLTUNES = "oltunes"
PLANNERS = (JOINT, HETSEV, MUDI, INSS, MORAK, OLTUNES)
MEASURING = frozenset({MUDI})  # those that try batches on what runs
HPA = "hpa"
HPA_CHEAPEST = "hpa-cheapest"
RESERVE = "reserve-and-pack"
MELANGE = "melange"
LARGEST = "largest"
ONE_PER_GPU = "one-per-gpu"
TIME_SLICED = "time-sliced"
# What planners are compared with; a policy cannot name them. Other distributions add some.
BASELINES = (HPA, HPA_CHEAPEST, RESERVE, MELANGE, LARGEST, ONE_PER_GPU, TIME_SLICED)


def find_added_planners() -> EntryPoints:
    """Returns the entry points of those that other distributions add."""
    from importlib.metadata import entry_points  # slow, hence here

    return entry_points(group="gpuwright.planners")


class UnknownPlanner(ValueError):
    """A name that no planner has; the message lists those that there are."""

    def __init__(self, name: str) -> None:
        super().__init__(f"planner {name!r} is unknown; allowed: {', '.join(PLANNERS)}")
