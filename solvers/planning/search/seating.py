"""Puts the instances of a plan that was found by other means on a board, for a search to begin at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from solvers.planning.pressures import add_strangers
from solvers.planning.problem import Instance
from solvers.planning.search.arrays import MOST_RESIDENTS
from solvers.planning.search.capacity import best_rate
from solvers.planning.search.workshop import PatternColumn, Workshop


def seat_instances(shop: Workshop, lines: Iterable[Instance]) -> None:
    """Makes the board hold these instances alone, each with the most that it may carry next to the others.

    Instances that the board knows no offer or no room for are left out.
    """
    t = shop.t
    shop.clear_all()
    number_of = {place: gpu for gpu, place in enumerate(place for pool in t.pools for place in pool.gpus)}
    by_gpu: dict[int, list[Instance]] = defaultdict(list)
    for line in lines:
        gpu = number_of.get(line.place)
        if gpu is not None and not shop.pools.closed[gpu]:
            by_gpu[gpu].append(line)
    offer_of = {
        (site, int(t.offer_service[offer]), t.offer_variant[offer]): offer
        for site in range(len(t.site_types))
        for offer in range(int(t.site_start[site]), int(t.site_start[site + 1]))
    }
    batch_of = {int(batch): index for index, batch in enumerate(t.batches)}
    for gpu, own in sorted(by_gpu.items()):
        site = int(shop.pools.site[shop.board.pool[gpu]])
        known = [
            (offer_of[key], line.sm_percent, batch_of[line.batch])
            for line in own
            if (key := (site, t.number_of.get(line.service, -1), line.variant)) in offer_of and line.batch in batch_of
        ]
        clocks = {t.site_types[site].top_clock_mhz / line.clock_mhz for line in own}
        column = _column(shop, gpu, known[:MOST_RESIDENTS], max(clocks))
        if column is not None and shop.has_room(gpu, column):
            shop.seat(gpu, column)
    shop.restack()


def _column(
    shop: Workshop, gpu: int, residents: Sequence[tuple[int, int, int]], clock: float
) -> PatternColumn | None:  # fmt: skip
    """Returns these residents with the batches that carry most; None if none carries anything."""
    t = shop.t
    pool = int(shop.board.pool[gpu])
    if not residents:
        return None
    offers, sms, batches = (np.array(values, dtype=np.int64) for values in zip(*residents, strict=True))
    profiles = t.offer_profile[offers]
    pressure, memory = t.pressure[profiles, sms], t.memory_gib[profiles, batches]
    outside = shop.w.share_pressure * (100 - int(sms.sum())) / 100
    spare_gib = float(shop.w.site_memory_gib[shop.pools.site[pool]]) - float(memory.sum())
    caps = np.zeros(len(offers))
    for i, offer in enumerate(offers.tolist()):
        beside = complex(pressure.sum() - pressure[i])
        beside = add_strangers(complex(t.sensitivity[profiles[i]]), beside, outside)
        cap, batch = best_rate(shop.w, offer, int(sms[i]), beside, clock, spare_gib + float(memory[i]))
        if cap > 0 and batch >= 0:
            needed = float(t.memory_gib[profiles[i], batch])
            caps[i], batches[i] = cap, batch
            spare_gib += float(memory[i]) - needed
            memory[i] = needed
    found = PatternColumn(pool, offers, sms, batches, caps, clock, 0.0, 0.0).only(caps > 0)
    return found if len(found.offers) else None
