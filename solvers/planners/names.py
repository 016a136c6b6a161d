"""The names of planners, as Policy.planner has them."""

from __future__ import annotations

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
GPULET = "gpulet"
GSLICE = "gslice"
IGNITER = "igniter"
ORION = "orion"
RESERVE = "reserve-and-pack"
MELANGE = "melange"
MUXFLOW = "muxflow"
LARGEST = "largest"
ONE_PER_GPU = "one-per-gpu"
# What planners are compared with; a policy cannot name them.
BASELINES = (
    HPA, HPA_CHEAPEST, GPULET, GSLICE, IGNITER, ORION, RESERVE, MELANGE, MUXFLOW, LARGEST, ONE_PER_GPU,
)  # fmt: skip


class UnknownPlanner(ValueError):
    """A name that no planner has; the message lists those that there are."""

    def __init__(self, name: str) -> None:
        super().__init__(f"planner {name!r} is unknown; allowed: {', '.join(PLANNERS)}")
