"""Decides which instances of a service may stop, for planners whose papers leave that open."""

from __future__ import annotations

from collections.abc import Iterable

from solvers.planning.problem import Service

SPARE_SHARE = 1.25  # of the rate: what must remain before an instance stops


def spare_instances(service: Service, carried: Iterable[tuple[str, float]]) -> set[str]:
    """Returns the instances without which the others carry a quarter more than the service's rate.

    `carried` has each instance with what it carries, those first that should stop first.
    """
    ranked = list(carried)
    rest, total, gone = len(ranked), sum(rate for _, rate in ranked), set[str]()
    for name, rate in ranked:
        if rest > max(1, service.min_instances) and total - rate >= SPARE_SHARE * service.rate_per_second:
            gone.add(name)
            rest, total = rest - 1, total - rate
    return gone
