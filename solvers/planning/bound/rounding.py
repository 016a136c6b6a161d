"""Finds ways of rounding rates that the linear programme's present answer breaks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from solvers.planning.bound.fleet import BoundFleet
from solvers.planning.bound.market import RealPattern
from solvers.planning.fleet.grids import Floats
from solvers.planning.steps import LARGE_SHARE, RateSteps, surviving

MOST_STEPS = 8  # that all of a rate fills
LEAST_RISE = 0.02
GRID = np.concatenate([whole + np.arange(LEAST_RISE, 1.0, 0.02) for whole in range(1, MOST_STEPS)])
MOST_A_SERVICE = 2  # at a time
LEAST_GAIN_SHARE = 2e-3  # of a service's rate
MOST_HOSTS = 4  # nodes of a service that rows tell apart: more need little more of its rate
CAPACITY_ALONE = 1e3  # so much more than instances, what they could carry counts in a row
SAME_SHARE = 2e-3  # of a length: two that are closer are the same

Bought = list[tuple[RealPattern, float]]


def least_instances(f: BoundFleet) -> RateSteps:
    """Returns the rows that count the instances of services that ask for several.

    Of two instances asked for, small ones count for less, unless all of a service's on a GPU count as one.
    """
    t = f.tables
    several = np.flatnonzero(t.min_instances > 1)
    is_two = (t.min_instances[several] == 2) & ~t.is_dedicated[several]
    length = np.where(is_two, -f.need[several], 0.0)
    least = np.where(is_two, 2.0 * LARGE_SHARE, t.min_instances[several])
    return RateSteps.of_rates(several, length, np.ones(len(several)), least.astype(np.float64))


def surviving_nodes(f: BoundFleet) -> RateSteps:
    """Returns the rows of services that survive the loss of a node: one for each number of nodes that hosts them.

    The row of K nodes counts an instance as 1, and what it could carry by K x (K - 1) of all of the rate: K and K + 1
    nodes fill the same, any other number more. The last row counts little but what could be carried.
    """
    t = f.tables
    rows: list[tuple[int, float, int]] = []
    for service in np.flatnonzero(t.survives):
        nodes = _hosts(f, int(service))
        each = [float(hosts * (hosts - 1)) for hosts in range(2, min(nodes, MOST_HOSTS))]
        rows += [(int(service), by, nodes) for by in (*each, CAPACITY_ALONE * max(nodes - 1, 1) ** 2)]
    services = np.array([service for service, _, _ in rows], dtype=np.int64)
    by, nodes_of = np.array([by for _, by, _ in rows]), np.array([nodes for _, _, nodes in rows], dtype=np.int64)
    nothing, ones = np.zeros(len(rows)), np.ones(len(rows))
    return RateSteps(services, nothing, ones, surviving(by, nodes_of), by / f.need[services], nodes_of)


def _hosts(f: BoundFleet, service: int) -> int:
    """Returns how many nodes may run a service."""
    t = f.tables
    offered = {int(site) for site in np.repeat(np.arange(len(t.site_types)), np.diff(t.site_start))[
        t.offer_service == service
    ]}  # fmt: skip
    return len({node for pool in t.pools if pool.site in offered for node, _ in pool.gpus})


def broken(f: BoundFleet, bought: Bought, money: Floats, most: int) -> RateSteps:
    """Returns up to `most` ways of rounding that the instances bought break by most money: two a service at most."""
    rates: list[list[float]] = [[] for _ in f.need]
    amounts: list[list[float]] = [[] for _ in f.need]
    for p, amount in bought:
        for offer, rate in zip(p.offers, p.rates, strict=True):
            service = int(f.tables.offer_service[offer])
            rates[service].append(min(float(rate) / float(f.need[service]), 1.0))
            amounts[service].append(amount)
    found: list[tuple[float, int, float]] = []
    for service in range(len(f.need)):
        if rates[service]:
            known = f.steps.length[(f.steps.service == service) & (f.steps.length > 0.0)]
            worst = _worst(np.array(rates[service]), np.array(amounts[service]), f.need[service] / known)
            found += [(-short * float(money[service]), service, count) for count, short in worst]
    chosen = sorted(found)[:most]
    services = np.array([service for _, service, _ in chosen], dtype=np.int64)
    lengths = np.array([count for _, _, count in chosen], dtype=np.float64)
    whole = np.floor(lengths)
    return RateSteps.of_rates(services, f.need[services] / lengths, lengths - whole, whole + 1.0)


def _worst(part: Floats, amount: Floats, known: Floats) -> Iterator[tuple[float, float]]:
    """Yields how many lengths make up the rate, for the lengths that parts of it break most, and by how much."""
    counts = np.concatenate([GRID, *((np.arange(1, MOST_STEPS) / p) for p in np.unique(part[part > 0.0]))])
    rise = counts - np.floor(counts)
    counts = counts[(counts > 1.0) & (counts < MOST_STEPS) & (rise >= LEAST_RISE)]
    rise = counts - np.floor(counts)
    lengths = counts[:, None] * part
    whole = np.floor(lengths + 1e-9)
    filled = (whole + np.minimum(1.0, np.maximum(lengths - whole, 0.0) / rise[:, None])) @ amount
    short = 1.0 - filled / (np.floor(counts) + 1.0)
    chosen = list(known)
    for place in np.argsort(-short, kind="stable"):
        if short[place] < LEAST_GAIN_SHARE or len(chosen) == len(known) + MOST_A_SERVICE:
            return
        if not any(abs(counts[place] / other - 1.0) < SAME_SHARE for other in chosen):
            chosen.append(float(counts[place]))
            yield float(counts[place]), float(short[place])
