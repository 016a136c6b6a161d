"""Halves the classes of pressure that decide, and moves the patterns found in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from solvers.planning.bound.fleet import BoundFleet, split
from solvers.planning.bound.market import ClassPattern
from solvers.planning.fleet.grids import Floats

LEAST_WIDTH_PRESSURE = 0.015  # of pressure: finer classes gain less than 1 % in all

Fate = dict[tuple[int, int], tuple[int, ...]]  # (market, place) before -> places after


def halve(f: BoundFleet, worth: Floats, prices: Floats, near: float) -> tuple[int, Fate]:
    """Halves the classes that decide the worth of a GPU; returns the work done, 0 if all are fine enough."""
    work = 0
    fate: Fate = {}
    for m in f.markets:
        top = float(worth[m.number])
        is_used = top > 0.0 and top >= float(f.fixed[m.pools].min()) - near * m.scale
        shift = 0
        for place in range(len(m.classes)):
            c = m.classes[place + shift]
            if is_used and c.hi - c.lo > LEAST_WIDTH_PRESSURE and float(c.own[2]) >= top - near * m.scale:
                work += split(f, m, place + shift, prices)
                fate[m.number, place] = (place + shift, place + shift + 1)
                shift += 1
            else:
                fate[m.number, place] = (place + shift,)
    return work, fate


def carried(f: BoundFleet, p: ClassPattern, fate: Fate) -> list[ClassPattern]:
    """Returns a pattern in the present classes, with the rates of their lines."""
    if p.place < 0:
        return [p]
    m = f.markets[p.market]
    places = fate[p.market, p.place]
    if len(places) == 1:
        return [replace(p, place=places[0])]
    place = places[0] if p.pressure <= m.classes[places[0]].hi else places[1]
    c = m.classes[place]
    rows = p.offers - m.first
    return [
        replace(
            p,
            place=place,
            end=end,
            rates=(c.at_hi if end else c.at_lo)[rows, p.sms].astype(np.float64),
            spare=c.spare_of(rows, p.sms, end),
        )
        for end in (0, 1)
    ]
