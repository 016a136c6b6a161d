"""Gives instances that a plan resizes their shares back where the plan carries as much without that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from solvers.planning.plan import ServicePlan
from solvers.planning.problem import Instance, Place
from solvers.planning.replan.kernels import capacities, fits
from solvers.planning.replan.lines import assign, difference, predict_lines
from solvers.planning.replan.match import Key, key_of, lines_by_place
from solvers.planning.replan.replanner import price_services
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
    if not state or services.unserved:
        return services
    running = lines_by_place(state.running)
    resized = {
        line.place
        for line in services.instances
        if not any(key_of(line) == key_of(old) for old in running.get(line.place, ()))
        and any(_is_resized(key_of(line), old) for old in running.get(line.place, ()))
    }
    if not resized:
        return services
    shop, _ = price_services(t, 0)
    d = running_board(t, shop, state.jobs)
    if seat(d, services.instances):  # beside the jobs that run it breaks a rule, so that they will move
        return services
    d.forget()
    touched = restore_shares(d, sorted(d.number_of[place] for place in resized), running)
    if not touched:
        return services
    rests = assign(d, sorted(touched))
    difference(d, touched, len(services.instances) + len(state.running), rests)
    found = ServicePlan(list(predict_lines(d)), [], services.origin)
    return found if not any(rests.values()) and value_of(t, found) < value_of(t, services) else services


def restore_shares(d: RunningBoard, gpus: Iterable[int], running: Mapping[Place, Sequence[Instance]]) -> set[int]:
    """Gives what runs on these GPUs its share back where all rates are carried then; returns the services there."""
    touched: set[int] = set()
    for gpu in gpus:
        shapes = {slot: _shape(d, gpu, slot) for slot in range(int(d.b.count[gpu]))}
        for old in running.get(d.place_of[gpu], ()):
            same = next((slot for slot, shape in shapes.items() if shape == key_of(old)), None)
            if same is not None:
                del shapes[same]
                continue
            slots = [slot for slot, shape in shapes.items() if _is_resized(shape, old)]
            if slots and _is_restored(d, gpu, slots[0], old):
                del shapes[slots[0]]
                touched.update(d.w.offer_service[d.b.offer[gpu, : d.b.count[gpu]]].tolist())
    return touched


def _shape(d: RunningBoard, gpu: int, slot: int) -> Key:
    offer = d.b.offer[gpu, slot]
    service = d.t.services[d.w.offer_service[offer]]
    return service, d.t.offer_variant[offer], int(d.b.sm[gpu, slot]), round(float(d.x.memory[gpu, slot]), 9)


def _is_resized(shape: Key, old: Instance) -> bool:
    return shape[:2] == (old.service, old.variant) and shape[2] != old.sm_percent


def _is_restored(d: RunningBoard, gpu: int, slot: int, old: Instance) -> bool:
    """Gives an instance the share that it runs with; if that carries too little, changes nothing and returns False."""
    b, x = d.b, d.x
    sm, batch, memory = int(b.sm[gpu, slot]), int(b.batch[gpu, slot]), float(x.memory[gpu, slot])
    batches = {int(size): index for index, size in enumerate(d.t.batches)}
    clocks = d.t.problem.type_of(old.node).clocks_mhz
    if old.batch not in batches or clocks[-1] / old.clock_mhz != b.clock[gpu]:
        return False
    d.reshape(gpu, slot, old.sm_percent, batches[old.batch])
    x.memory[gpu, slot] = old.memory_gib
    services = set(d.w.offer_service[b.offer[gpu, : b.count[gpu]]].tolist())
    if fits(d.w, b, x, gpu) and all(_carries_all(d, service) for service in services):
        d.set_lines([(gpu, slot)], [old])
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
