"""Gives instances that a plan resizes their shares back where the plan carries as much without that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from solvers.planning.plan import ServicePlan
from solvers.planning.problem import Instance, Place
from solvers.planning.replan.kernels import capacities, fits
from solvers.planning.replan.lines import assign, difference, predicted
from solvers.planning.replan.match import key_of, lines_by_place
from solvers.planning.replan.replanner import priced
from solvers.planning.replan.running import value_of
from solvers.planning.replan.running_board import RunningBoard, running_board
from solvers.planning.replan.seat import seat
from solvers.planning.search.tables import Tables

CLOSE_SHARE = 1e-7  # of a rate: a smaller lack is rounding


def keep_shares(t: Tables, services: ServicePlan) -> ServicePlan:
    """Returns the same plan with as few resizes as this allows, GPU by GPU.

    A search fills GPUs to the last per cent, so that what runs there often gets a few more or less, although its
    services have capacity to spare elsewhere. Each resize is a hand-over.
    """
    state = t.problem.state
    resized = _resized(services.instances, state.running if state else ())
    if not state or not resized or services.unserved:
        return services
    shop, _ = priced(t, 0)
    d = running_board(t, shop, state.jobs)
    if seat(d, services.instances):  # beside the jobs that run it breaks a rule, so that they will move
        return services
    d.forget()
    touched: set[int] = set()
    for place, old in resized:
        gpu = d.number_of[place]
        slots = [slot for slot, line in enumerate(d.lines[gpu]) if line and _is_resized(line, old)]
        if slots and _is_kept(d, gpu, slots[0], old):
            touched.update(d.w.offer_service[d.b.offer[gpu, : d.b.count[gpu]]].tolist())
    if not touched:
        return services
    rests = assign(d, sorted(touched))
    difference(d, touched, len(services.instances) + len(state.running), rests)
    found = ServicePlan(list(predicted(d)), [], services.origin)
    return found if not any(rests.values()) and value_of(t, found) < value_of(t, services) else services


def _resized(lines: Sequence[Instance], running: Sequence[Instance]) -> list[tuple[Place, Instance]]:
    """Returns what runs in another size than planned, the largest first."""
    planned, found = lines_by_place(lines), []
    for place, before in lines_by_place(running).items():
        new = list(planned.get(place, ()))
        gone = []
        for old in before:
            same = next((line for line in new if key_of(line) == key_of(old)), None)
            if same:
                new.remove(same)
            else:
                gone.append(old)
        found += [(place, old) for old in gone if any(_is_resized(line, old) for line in new)]
    return sorted(found, key=lambda entry: (-entry[1].sm_percent, entry[0], entry[1].id))


def _is_resized(line: Instance, old: Instance) -> bool:
    return (line.service, line.variant) == (old.service, old.variant) and line.sm_percent != old.sm_percent


def _is_kept(d: RunningBoard, gpu: int, slot: int, old: Instance) -> bool:
    """Gives an instance the share that it runs with; if that carries too little, changes nothing and returns False."""
    b, x, line = d.b, d.x, d.lines[gpu][slot]
    assert line
    sm, batch, memory = int(b.sm[gpu, slot]), int(b.batch[gpu, slot]), float(x.memory[gpu, slot])
    batches = {int(size): index for index, size in enumerate(d.t.batches)}
    if old.batch not in batches:
        return False
    d.reshape(gpu, slot, old.sm_percent, batches[old.batch])
    x.memory[gpu, slot] = old.memory_gib
    services = set(d.w.offer_service[b.offer[gpu, : b.count[gpu]]].tolist())
    if fits(d.w, b, x, gpu) and all(_carries_all(d, service) for service in services):
        new = replace(line, id=old.id, sm_percent=old.sm_percent, batch=old.batch, memory_gib=old.memory_gib)
        d.set_line(gpu, slot, new)
        d.touched |= services
        return True
    d.reshape(gpu, slot, sm, batch)
    x.memory[gpu, slot] = memory
    return False


def _carries_all(d: RunningBoard, service: int) -> bool:
    """Returns whether the instances of a service carry its rate with the batches that they have."""
    gpus, slots = d.seats(service)
    now, best, by = np.zeros(len(gpus)), np.zeros(len(gpus)), np.zeros(len(gpus), dtype=np.int64)
    capacities(d.w, d.b, d.x, gpus, slots, now, best, by)
    return float(now.sum()) >= float(d.w.rate[service]) * (1 - CLOSE_SHARE)
