"""Tabulates the shapes that may run on one GPU of a site, with the rates that they carry there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from solvers.planning.exact.kernels import ExactOptions, fill_caps
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.search.tables import Tables

LEVELS = 512  # of the neighbours' pressure
SUM_SHARE = 1e-9  # the judge's tolerance for sums of floats


class _OfferShape(NamedTuple):
    """An offer at an SM%, with the batches that fit in order of memory."""

    offer: int
    sm: int
    batches: list[int]


class _BatchTable(NamedTuple):
    """The batches of each shape: [shape, stair], the one of least memory first."""

    stairs: Floats
    exec_ms: Floats
    batch: Floats
    batch_number: Ints
    row: Floats


def options(t: Tables, site: int) -> ExactOptions | None:
    """Tabulates the shapes that fit on an empty GPU of a site; None if nothing can run there."""
    kind = t.site_types[site]
    shapes: list[_OfferShape] = []
    slot_start = [0]
    for group in range(t.site_group[site], t.site_group[site + 1]):
        for offer in range(t.group_start[group], t.group_start[group + 1]):
            shapes += _shapes(t, offer, kind.memory_gib)
        if len(shapes) > slot_start[-1]:
            slot_start.append(len(shapes))
    if not shapes:
        return None
    offers = np.array([shape.offer for shape in shapes])
    sms = np.array([shape.sm for shape in shapes])
    profiles, served = t.offer_profile[offers], t.offer_service[offers]
    pressure = t.pressure[profiles, sms].real.copy()
    clocks = kind.top_clock_mhz / np.array(kind.clocks_mhz[::-1])
    watts = t.power_w[profiles, sms] * clocks[:, None] ** -t.power_exponent[profiles]
    if watts[0].max() == 0 and kind.idle_w <= kind.max_w:  # no watts: no reason for a lower clock
        clocks, watts = clocks[:1], watts[:1]
    table = _batch_table(t, shapes)
    made = ExactOptions(
        slot_start=np.array(slot_start, dtype=np.int64),
        offer=offers,
        service=served,
        sm=sms,
        dedicated=t.is_dedicated[served].astype(np.int64),
        pressure=pressure,
        watts=np.ascontiguousarray(watts),
        caps=np.zeros((len(shapes), LEVELS, table.stairs.shape[1])),
        stair_count=np.array([len(shape.batches) for shape in shapes], dtype=np.int64),
        sensitivity=t.sensitivity[profiles].real.copy(),
        slowdown=np.ascontiguousarray(clocks[:, None] ** t.clock_exponent[profiles]),
        slo_ms=t.slo_ms[served],
        step=max(_most_pressure(slot_start, sms, pressure), 1e-9) / LEVELS,
        memory_gib=kind.memory_gib * (1 + SUM_SHARE),
        idle_w=float(kind.idle_w),
        max_w=kind.max_w * (1 + SUM_SHARE),
        most=min(t.problem.policy.clients_per_gpu, SM),
        services=len(t.services),
        utilization=float(t.utilization),
        margin=float(t.margin),
        **table._asdict(),
    )
    fill_caps(made)
    return made


def _most_pressure(slot_start: Sequence[int], sms: Ints, pressure: Floats) -> float:
    """Returns the most pressure that residents of one GPU make together, one a slot."""
    best = np.zeros(SM)  # in so many SM%
    for first, last in pairwise(slot_start):
        by_sm = np.zeros(SM)
        np.maximum.at(by_sm, sms[first:last], pressure[first:last])
        grown = best.copy()
        for x in np.flatnonzero(by_sm):
            np.maximum(grown[x:], best[: SM - x] + by_sm[x], out=grown[x:])
        best = grown
    return float(best.max()) * (1 + SUM_SHARE)


def _batch_table(t: Tables, shapes: Sequence[_OfferShape]) -> _BatchTable:
    size = (len(shapes), max(len(shape.batches) for shape in shapes))
    table = _BatchTable(
        stairs=np.full(size, np.inf),
        exec_ms=np.full(size, np.inf),
        batch=np.ones(size),
        batch_number=np.zeros(size, dtype=np.int64),
        row=np.zeros((*size, t.loads.shape[2])),
    )
    for number, (offer, sm, batches) in enumerate(shapes):
        profile, percentile = t.offer_profile[offer], t.percentile_row[t.offer_service[offer]]
        for j, b in enumerate(batches):
            table.stairs[number, j] = t.memory_gib[profile, batches[: j + 1]].max()
            table.exec_ms[number, j], table.batch[number, j] = t.exec_ms[profile, b, sm], t.batches[b]
            table.batch_number[number, j] = b
            table.row[number, j] = t.loads[percentile, b]
    return table


def _shapes(t: Tables, offer: int, memory_gib: float) -> list[_OfferShape]:
    """Lists the offer at each SM% at which a batch fits and meets the SLO alone."""
    profile = t.offer_profile[offer]
    found = []
    order = np.lexsort((t.batches, t.memory_gib[profile]))
    for sm in range(1, SM):
        batches = [
            int(b)
            for b in order
            if t.memory_gib[profile, b] <= memory_gib
            and t.exec_ms[profile, b, sm] * t.margin <= t.slo_ms[t.offer_service[offer]]
        ]
        if batches:
            found.append(_OfferShape(offer, sm, batches))
    return found
