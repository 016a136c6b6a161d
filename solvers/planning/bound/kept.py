"""Keeps what a search for a bound has found, and begins the next one from there at other rates.

Prices, divisors of rates, classes and columns are kept; rates, lines and right sides are computed again. So nothing
that is kept is part of a proof: any prices prove a bound, in any classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solvers.planning.bound.fleet import BoundFleet, part
from solvers.planning.bound.market import Lines, Market, RealPattern, settle_patterns
from solvers.planning.bound.rounding import least_instances, surviving_nodes
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.kept_search import KeptClasses, KeptColumns, KeptSearch
from solvers.planning.steps import RateSteps

DECIDES_SHARE = 0.03  # of a GPU's price: classes worth less than the best by more are joined with their neighbours
NARROWEST_PRESSURE = 0.06  # narrower neighbours are joined, for their rows and knapsacks delay the first rounds
ALL_SHARE = 1 - 1e-5  # of a service's rate: lines are float32
MOVED_SHARE = 0.3  # of the change of a rate, by which its price moves the other way: between those of few and many GPUs


def is_of(kept: KeptSearch, f: BoundFleet) -> bool:
    """Returns whether the services and offers of a problem are those searched, in the same order."""
    t = f.tables
    return (
        kept.services == tuple(t.services)
        and np.array_equal(kept.offer_service, t.offer_service)
        and np.array_equal(kept.site_start, t.site_start)
        and len(kept.classes) == len(f.markets)
    )


def keep(f: BoundFleet, prices: Floats, columns: list[RealPattern]) -> KeptSearch:
    """Returns what a search has found: these prices and columns, and the present classes and steps."""
    t = f.tables
    count = np.array([len(p.offers) for p in columns], dtype=np.int64)
    nothing = np.zeros(0)
    offers = np.concatenate([*[p.offers for p in columns], nothing]).astype(np.int32)
    return KeptSearch(
        services=tuple(t.services),
        offer_service=t.offer_service,
        site_start=t.site_start,
        need=f.need,
        prices=prices,
        steps=f.steps,
        classes=tuple(_joined(m) for m in f.markets),
        columns=KeptColumns(
            np.array([p.market for p in columns], dtype=np.int32),
            np.concatenate([[0], np.cumsum(count)]).astype(np.int32),
            offers,
            np.concatenate([*[p.sms for p in columns], nothing]).astype(np.int8),
            np.concatenate([*[p.rates for p in columns], nothing]) > ALL_SHARE * f.need[t.offer_service[offers]],
        ),
    )


def _joined(m: Market) -> KeptClasses:
    """Returns the classes of a market; neighbours of which none comes near to deciding are one.

    Classes of two pressures have no neighbours in a row: they are one.
    """
    if m.classes[-1].hi.imag > 0.0:
        return KeptClasses(np.zeros(2), max(m.classes, key=lambda c: float(c.own[3])).own[None].copy())
    top = max(float(c.own[3]) for c in m.classes)
    edges, was_far = [m.classes[0].lo.real], False
    own: list[Floats] = []
    for c in m.classes:
        is_far = float(c.own[3]) < top - DECIDES_SHARE * m.scale
        if len(own) and ((is_far and was_far) or c.hi.real - edges[-2] <= NARROWEST_PRESSURE):
            edges[-1] = c.hi.real
            own[-1] = max(own[-1], c.own, key=lambda prices: float(prices[3])).copy()
        else:
            edges.append(c.hi.real)
            own.append(c.own.copy())
            was_far = is_far
    return KeptClasses(np.array(edges), np.array(own))


def restore(f: BoundFleet, kept: KeptSearch) -> Floats:
    """Gives a fleet the steps and classes that were kept; returns the prices, of rates and then of steps."""
    prices = _restore_steps(f, kept)
    for m, classes in zip(f.markets, kept.classes, strict=True):
        _divide(f, m, classes, prices)
    return prices


def _restore_steps(f: BoundFleet, kept: KeptSearch) -> Floats:
    """Rounds rates by the divisors kept, and counts instances and nodes again; returns the prices of all."""
    services, old = len(f.need), kept.steps
    growth = f.need / kept.need
    moved = growth**-MOVED_SHARE
    of_steps = kept.prices[services:]
    long = np.flatnonzero(old.length > 0.0)
    rounded = old.at(long).scaled(growth)
    counted = least_instances(f).plus(surviving_nodes(f))
    # A row that counts is known by its service, by what it counts, and by its place among those.
    known = {
        row: float(of_steps[place])
        for place, row in zip(np.flatnonzero(old.length <= 0.0), _rows(old, old.length <= 0.0), strict=True)
    }
    again = np.array([known.get(row, 0.0) for row in _rows(counted, np.ones(len(counted), dtype=np.bool_))])
    f.steps = counted.plus(rounded)
    who = old.service[long]
    prices = np.concatenate([kept.prices[:services] * moved, again, of_steps[long] * (growth * moved)[who]])
    return f.limited(prices)


def _rows(steps: RateSteps, are_wanted: NDArray[np.bool_]) -> Iterator[tuple[int, bool, int]]:
    seen: Counter[tuple[int, bool]] = Counter()
    for service, spare in zip(steps.service[are_wanted], steps.spare[are_wanted], strict=True):
        key = (int(service), bool(spare > 0.0))
        yield (*key, seen[key])
        seen[key] += 1


def _divide(f: BoundFleet, m: Market, kept: KeptClasses, prices: Floats) -> None:
    """Divides the one class of a market where it was divided before; not one of both pressures, by now."""
    whole = m.classes[0]
    inner = (kept.edges[1:-1] > whole.lo.real) & (kept.edges[1:-1] < whole.hi.real)
    if len(m.classes) > 1 or whole.hi.imag > 0.0 or not inner.any():
        return
    own = np.concatenate([kept.own[:1], kept.own[1:][inner]])
    edges = np.concatenate([[whole.lo.real], kept.edges[1:-1][inner], [whole.hi.real]])
    m.classes = [part(f, m, whole, of, prices)[0] for of in pairwise((edges + 0j).tolist())]
    for c, of_class in zip(m.classes, own, strict=True):
        c.own[:] = of_class


def restored_columns(f: BoundFleet, kept: KeptColumns, prices: Floats) -> list[RealPattern]:
    """Returns the columns with the rates that residents carry now; each profile has its best offer at these prices."""
    found: list[RealPattern] = []
    steps = f.priced_steps(prices)
    tops = [np.array([c.hi.real for c in m.classes]) for m in f.markets]
    for column, number in enumerate(kept.market):
        m, s = f.markets[number], f.scratch
        residents = slice(kept.start[column], kept.start[column + 1])
        rows, sms = kept.offers[residents].astype(np.int64) - m.first, kept.sms[residents].astype(np.int64)
        profiles = m.profile[rows]
        pressure = m.idle + float(m.added[profiles, sms].real.sum())
        c = m.classes[min(int(np.searchsorted(tops[number], pressure)), len(m.classes) - 1)]
        s.got_profile[0, : len(rows)] = profiles
        s.got_sm[0, : len(rows)] = _resized(c.at_lo, rows, sms, f.need[m.service[rows]], kept.is_all[residents])
        s.about[0, 0] = len(rows)
        found += settle_patterns(f.accepted, m, prices, steps, s, 1)[0]
    return found


def _resized(lines: Lines, rows: Ints, sms: Ints, need: Floats, is_all: NDArray[np.bool_]) -> Ints:
    """Returns the fewest SMs at which residents that carried all of a rate do so again, if the GPU has as many."""
    if not is_all.any():
        return sms
    carries = lines[rows] >= (need * ALL_SHARE)[:, None]
    least = np.argmax(carries, axis=1)
    found = np.where(is_all & (least > 0), least, sms)
    return found if found.sum() <= 100 else sms
