"""Puts running instances on a board, without those that are invalid as they are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from solvers.planning.problem import Instance
from solvers.planning.replan.kernels import carries, fits
from solvers.planning.replan.running_board import RunningBoard


def seat(d: RunningBoard, instances: Iterable[Instance]) -> set[int]:
    """Seats the instances; returns the services with an instance left out or with too high a rate."""
    t, b, x = d.t, d.b, d.x
    site_of_offer = np.repeat(np.arange(len(t.site_types)), np.diff(t.site_start))
    offer_of = {
        (int(s), variant, int(site)): offer
        for offer, (s, variant, site) in enumerate(zip(t.offer_service, t.offer_variant, site_of_offer, strict=True))
    }
    batch_of = {int(batch): index for index, batch in enumerate(t.batches)}
    broken: set[int] = set()
    touched: set[int] = set()
    for line in instances:
        service = t.number_of[line.service]
        gpu, batch = d.number_of.get(line.place), batch_of.get(line.batch)
        offer = None if gpu is None else offer_of.get((service, line.variant, int(x.site[gpu])))
        if gpu is None or batch is None or offer is None or not _is_profiled(d, offer, batch, line):
            broken.add(service)
            continue
        clocks = t.site_types[x.site[gpu]].clocks_mhz
        clock = clocks[-1] / line.clock_mhz if line.clock_mhz in clocks else 0.0
        if b.count[gpu] == b.offer.shape[1] or not clock or (b.count[gpu] and clock != b.clock[gpu]):
            broken.add(service)
            continue
        b.clock[gpu] = clock
        slot = d.start(gpu, offer, line.sm_percent, batch, line.memory_gib, line)
        b.cap[gpu, slot] = x.rate[gpu, slot] = line.rate_per_second
        touched.add(gpu)
    for gpu in sorted(touched):
        broken |= _repair(d, gpu)
    return broken


def _is_profiled(d: RunningBoard, offer: int, batch: int, line: Instance) -> bool:
    profile = d.w.offer_profile[offer]
    if not 1 <= line.sm_percent <= 100 or not line.rate_per_second > 0:
        return False
    needed = d.w.memory_gib[profile, batch]
    return bool(np.isfinite(d.w.exec_ms[profile, batch, line.sm_percent]) and needed <= line.memory_gib * (1 + 1e-9))


def _repair(d: RunningBoard, gpu: int) -> set[int]:
    """Removes what does not fit, the smallest first; returns the services concerned or with too high a rate."""
    w, b, x = d.w, d.b, d.x
    broken: set[int] = set()
    if np.isfinite(x.most_pressure[gpu]):  # next to a job with a deadline pressure may not grow
        profiles = w.offer_profile[b.offer[gpu, : b.count[gpu]]]
        x.most_pressure[gpu] = complex(w.pressure[profiles, b.sm[gpu, : b.count[gpu]]].sum())
    node = b.node[gpu]
    while b.count[gpu]:
        over = b.cpu[node] < -1e-9 or b.host[node] < -1e-9
        tenants = w.service_tenant[w.offer_service[b.offer[gpu, : b.count[gpu]]]]
        over = over or bool((np.minimum(x.gpus_left, x.price_left)[tenants] < -1e-9).any())
        if not over and fits(w, b, x, gpu):
            break
        slot = int(np.argmin(b.sm[gpu, : b.count[gpu]]))
        broken.add(int(w.offer_service[b.offer[gpu, slot]]))
        d.stop(gpu, slot)
    for slot in range(int(b.count[gpu])):
        if x.rate[gpu, slot] > carries(w, b, x, gpu, slot) * (1 + 1e-9):
            broken.add(int(w.offer_service[b.offer[gpu, slot]]))
    return broken
