"""Places requests one at a time as they arrive, in microseconds: chooses the host and its GPUs."""

from lab.baselines.online.fleet import OnlineFleet, PlacedRequest
from lab.baselines.online.policies import BestFit, Fragmentation, LeastWaste, Policy
from lab.baselines.online.rehearsal import draw_arrivals, rehearse
from lab.baselines.online.together import place_all
from lab.baselines.online.workload import GpuRequest, Host, Workload

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
