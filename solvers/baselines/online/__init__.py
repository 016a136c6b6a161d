"""Places requests one at a time as they arrive, in microseconds: chooses the host and its GPUs."""

from solvers.baselines.online.fleet import OnlineFleet, PlacedRequest
from solvers.baselines.online.policies import BestFit, Fragmentation, LeastWaste, Policy
from solvers.baselines.online.rehearsal import draw_arrivals, rehearse
from solvers.baselines.online.together import place_all
from solvers.baselines.online.workload import GpuRequest, Host, Workload

__all__ = [
    "BestFit",
    "Fragmentation",
    "GpuRequest",
    "Host",
    "LeastWaste",
    "OnlineFleet",
    "PlacedRequest",
    "Policy",
    "Workload",
    "draw_arrivals",
    "place_all",
    "rehearse",
]
