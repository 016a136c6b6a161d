"""Requests placed one at a time as they come, in microseconds: which host, which GPU of it, or why not."""

from solvers.baselines.online.fleet import Fleet, Placed
from solvers.baselines.online.policies import BestFit, Fragmentation, LeastWaste, Policy
from solvers.baselines.online.together import place_all
from solvers.baselines.online.workload import Host, Request, Workload

__all__ = [
    "BestFit",
    "Fleet",
    "Fragmentation",
    "Host",
    "LeastWaste",
    "Placed",
    "Policy",
    "Request",
    "Workload",
    "place_all",
]
