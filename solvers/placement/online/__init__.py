"""Requests placed one at a time as they come, in microseconds: which host, which GPU of it, or why not."""

from solvers.placement.online.fleet import Fleet, Placed
from solvers.placement.online.policies import BestFit, Fragmentation, LeastWaste, Policy
from solvers.placement.online.together import place_all
from solvers.placement.online.workload import Host, Request, Workload

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
