"""Lines over boxes of pressure, on compute and on bandwidth, are above what instances accept there, in halves too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.families import family
from solvers.latency.kernels import accepted_load
from solvers.planning.bound.fleet import BoundFleet, class_of, fleet, part
from solvers.planning.bound.market import GpuClass
from solvers.planning.fleet.grids import SM
from solvers.planning.problem import Problem
from solvers.planning.search.tables import Tables, tables

SEEDS = range(3)


def press_on_both(problem: Problem, rng: np.random.Generator) -> Problem:
    """Returns it with models that press on bandwidth too, and suffer from that."""
    profiles = {}
    for key, profile in problem.profiles.items():
        share, feels, demand = rng.uniform(), rng.choice([0.0, 0.4, 1.0]), profile.demand
        pressure = tuple((sm, value * complex(1 - share, share)) for sm, value in demand.pressure)
        demand = replace(demand, pressure=pressure, sensitivity=complex(demand.sensitivity.real, feels))
        profiles[key] = replace(profile, demand=demand)
    return replace(problem, profiles=profiles)


def find_most(t: Tables, offer: int, x: int, slow: float) -> float:
    """Returns the rate that the best batch accepts."""
    profile, service, most = t.offer_profile[offer], t.offer_service[offer], 0.0
    for b, batch in enumerate(t.batches):
        judged = t.exec_ms[profile, b, x] * slow * t.margin
        if judged <= t.slo_ms[service]:
            load = accepted_load(t.loads[t.percentile_row[service], b], t.slo_ms[service] / judged)
            most = max(most, 1000 * batch * min(load, t.utilization * t.margin) / judged)
    return most


def draw_boxes(f: BoundFleet, rng: np.random.Generator) -> Iterator[tuple[int, GpuClass]]:
    """Yields the first offer of a market with a box there and both of its halves."""
    prices = np.ones(len(f.need))
    for m in f.markets:
        lo = complex(*rng.uniform(0, 0.7, 2))
        c = class_of(f, m, lo, lo + complex(*rng.uniform(0.05, 1, 2)))
        middle = complex(c.lo.real, 0.5 * (c.lo.imag + c.hi.imag))
        yield m.first, c
        yield m.first, part(f, m, c, (c.lo, complex(c.hi.real, middle.imag)), prices)[0]
        yield m.first, part(f, m, c, (middle, c.hi), prices)[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_rate_exceeds_its_line_whatever_neighbours_press_on(seed: int) -> None:
    rng, seen = np.random.default_rng(seed), 0
    f = fleet(tables(press_on_both(family("A", 8, 4, seed), rng)))
    t = f.tables
    for first, c in draw_boxes(f, rng):
        for _ in range(300):
            row, x = int(rng.integers(len(c.at_lo))), int(rng.integers(10, SM))
            feels, own = t.sensitivity[t.offer_profile[first + row]], t.pressure[t.offer_profile[first + row], x]
            along = rng.choice([0.0, 1.0, rng.uniform()]), rng.choice([0.0, 1.0, rng.uniform()])
            total = complex(c.lo.real + along[0] * (c.hi - c.lo).real, c.lo.imag + along[1] * (c.hi - c.lo).imag)
            if total.real < own.real or total.imag < own.imag:
                continue
            others = total - own
            most = find_most(t, first + row, x, 1 + feels.real * others.real + feels.imag * others.imag)
            across = feels.real * (c.hi - c.lo).real + feels.imag * (c.hi - c.lo).imag
            felt = feels.real * (total - c.lo).real + feels.imag * (total - c.lo).imag
            share = felt / across if across > 0 else 0.0
            line = c.at_lo[row, x] * (1 - share) + c.at_hi[row, x] * share
            assert min(most, f.need[t.offer_service[first + row]]) <= line * (1 + 1e-6)
            seen += most > 0
    assert seen > 100
