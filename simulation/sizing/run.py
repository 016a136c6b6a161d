"""Sizes a fleet for a trace: from the declared files and their rates to what to rent, and how that is known."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.control.formulate.problem import build_problem
from app.manifests.model import Manifest
from app.manifests.offline import DeclaredFiles
from simulation.measure.rates import RateCurve
from simulation.measure.run import Say
from simulation.own_databases import EmptyDatabases
from simulation.sizing.moments import highest_moments, trace_seconds
from simulation.sizing.planned import LoadTooLarge, RentalPlanner, UncarriedMoment
from simulation.sizing.rental import Rental, RentalMarket
from simulation.sizing.search import RentalSearch, figures_of
from simulation.sizing.trial import TraceSimulator


@dataclass(frozen=True, slots=True)
class SizingOrder:
    """The declared files, the load, and how much work may be spent on it."""

    declared: DeclaredFiles
    curves: Mapping[str, RateCurve]
    seed: int
    work: int
    simulations: int


@dataclass(frozen=True, slots=True)
class SizingReport:
    """The GPUs to rent, as figures and as Node manifests."""

    figures: Mapping[str, Any]
    nodes: tuple[Manifest, ...]


def size(databases: EmptyDatabases, order: SizingOrder, say: Say = lambda line: None) -> SizingReport:
    """Returns what to rent. Raises RentalRefused where nothing is rentable."""
    began = time.monotonic()
    market = RentalMarket.of(order.declared)
    problem = build_problem(order.declared)
    services = problem.services
    declared = {name: service.rate_per_second for name, service in services.items()}
    moments = highest_moments(order.curves, declared, market.worth())
    say(f"planning {len(moments)} moments of {trace_seconds(order.curves) / 60:.0f} minutes")
    simulator = TraceSimulator(
        market, order.curves, services, databases, order.seed, order.work, say
    )  # fmt: skip
    planner = RentalPlanner(market, moments, order.work, order.seed)
    search = RentalSearch(planner, market, simulator.try_rental, order.simulations, say)
    unserved: list[dict[str, object]] = []
    try:
        search.run()
    except LoadTooLarge as refused:
        unserved = _write_unserved(refused.moment)
    figures: dict[str, Any] = {
        **figures_of(search),
        **({"unserved": unserved} if unserved else {}),
        "declaredGpus": dict(Counter(node.gpu_type for node in problem.nodes.values() for _ in node.gpus)),
        "hours": round(trace_seconds(order.curves) / 3600, 6),
        "moments": len(moments),
        "peak": {"seconds": moments[0].seconds, "ratePerSecond": dict(moments[0].rates)},
        "seconds": round(time.monotonic() - began, 1),
    }
    return SizingReport(figures, tuple(market.nodes(Rental.of(figures["gpus"]))))


def _write_unserved(moment: UncarriedMoment) -> list[dict[str, object]]:
    return [
        {
            "service": entry.service,
            "seconds": moment.seconds,
            "ratePerSecond": round(entry.rate_per_second, 6),
            "reason": entry.reason,
            "relaxation": entry.relaxation,
        }
        for entry in moment.unserved
    ]
