"""What may stand on one GPU of a site, and the rates it carries there, as one table."""

from __future__ import annotations

import numpy as np

from solvers.planning.exact.kernels import ExactOptions, fill_caps
from solvers.planning.search.tables import SM, Tables

LEVELS = 512  # of the neighbours' pressure
SUM = 1e-9  # what the judge lets sums of floats be off by


def options(t: Tables, site: int, levels: int = LEVELS) -> ExactOptions | None:
    """None where nothing can run there."""
    kind = t.problem.gpu_types[t.site_types[site]]
    listed: list[tuple[int, int, list[int]]] = []  # offer, SM%, batches from the one of least memory on
    slot_start = [0]
    for group in range(t.site_group[site], t.site_group[site + 1]):
        for offer in range(t.group_start[group], t.group_start[group + 1]):
            listed += _shapes(t, offer, kind.memory_gib)
        if len(listed) > slot_start[-1]:
            slot_start.append(len(listed))
    if not listed:
        return None
    offers = np.array([offer for offer, _, _ in listed])
    sms = np.array([sm for _, sm, _ in listed])
    profiles, served = t.offer_profile[offers], t.offer_service[offers]
    most = max(len(batches) for _, _, batches in listed)
    pressure = t.pressure[profiles, sms]
    slots = [pressure[slot_start[i] : slot_start[i + 1]].max() for i in range(len(slot_start) - 1)]
    clocks = kind.top_clock_mhz / np.array(kind.clocks_mhz[::-1])
    watts = t.power_w[profiles, sms] * clocks[:, None] ** -t.power_exponent[profiles]
    if watts[0].max() == 0 and kind.idle_w <= kind.max_w:  # no watts: no reason for a lower clock
        clocks, watts = clocks[:1], watts[:1]
    shape = (len(listed), most)
    stairs, exec_ms = np.full(shape, np.inf), np.full(shape, np.inf)
    number_of = np.zeros(shape, dtype=np.int64)
    batch, row = np.ones(shape), np.zeros((*shape, t.loads.shape[2]))
    for number, (_, sm, batches) in enumerate(listed):
        profile, by = profiles[number], t.percentile_row[served[number]]
        for j, b in enumerate(batches):
            stairs[number, j] = t.memory_gib[profile, batches[: j + 1]].max()
            exec_ms[number, j], batch[number, j] = t.exec_ms[profile, b, sm], t.batches[b]
            number_of[number, j] = b
            row[number, j] = t.loads[by, b]
    made = ExactOptions(
        slot_start=np.array(slot_start, dtype=np.int64),
        offer=offers,
        service=served,
        sm=sms,
        dedicated=t.is_dedicated[served].astype(np.int64),
        pressure=pressure,
        watts=np.ascontiguousarray(watts),
        caps=np.zeros((len(clocks), len(listed), levels, most)),
        stairs=stairs,
        stair_count=np.array([len(batches) for _, _, batches in listed], dtype=np.int64),
        exec_ms=exec_ms,
        batch=batch,
        batch_number=number_of,
        sensitivity=t.sensitivity[profiles],
        slowdown=np.ascontiguousarray(clocks[:, None] ** t.clock_exponent[profiles]),
        row=row,
        slo_ms=t.slo_ms[served],
        step=max(float(sum(slots)), 1e-9) / levels,
        memory_gib=kind.memory_gib * (1 + SUM),
        idle_w=float(kind.idle_w),
        max_w=kind.max_w * (1 + SUM),
        most=min(t.problem.policy.clients_per_gpu, SM),
        services=len(t.services),
        utilization=float(t.utilization),
        margin=float(t.margin),
    )
    fill_caps(made)
    return made


def _shapes(t: Tables, offer: int, memory_gib: float) -> list[tuple[int, int, list[int]]]:
    """The offer at each SM%, with the batches that fit, in order of memory."""
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
            found.append((offer, sm, batches))
    return found
