"""Kubernetes as HetSev compares itself with it: a whole GPU for each instance, scaled by usage.

Numbers follow the horizontal pod autoscaler: usage above or below 80 % by more than a tenth changes them in proportion,
up by at most a doubling or four pods, down only to the largest number of the last five minutes. Kubernetes takes any
free GPU, so the type is random; `plan_cheapest` is the same autoscaler with the type on which the load costs least.
Ours, in favour of both: usage is of the rate that keeps the SLO, and gateways divide a rate by what instances carry.
"""

from __future__ import annotations

from solvers.baselines.hpa.plan import plan_cheapest, plan_random

__all__ = ["plan_cheapest", "plan_random"]
