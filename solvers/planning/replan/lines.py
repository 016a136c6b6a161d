"""Makes instances of a running board: their rates and timeouts, and what differs from before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solvers.latency import latency_at
from solvers.planning.plan import NONE_UNSERVED_SHARE
from solvers.planning.problem import Instance
from solvers.planning.replan.cover import Seats, known, spare
from solvers.planning.replan.rates import share_total, sum_of
from solvers.planning.replan.running_board import RunningBoard
from solvers.planning.search.promise import timeouts


@dataclass(frozen=True, slots=True)
class Difference:
    """Lines before and after a change; `unserved` is the unserved rate of each changed service."""

    before: tuple[Instance, ...]
    after: tuple[Instance, ...]
    unserved: dict[int, float]


def assign(d: RunningBoard, services: Iterable[int]) -> dict[int, float]:
    """Gives the instances that these services need their rates, and stops the others; returns what is unserved."""
    unserved: dict[int, float] = {}
    for service in services:
        if d.stirred.isdisjoint(d.homes[service]):  # none of their neighbours started or stopped
            gpus, slots = d.seats(service)
            seats = Seats(gpus, slots, d.b.cap[gpus, slots])
        else:
            seats = known(d, service, 0.0)
        seats = spare(d, service, seats)
        total, least = float(d.w.rate[service]), int(d.t.min_instances[service])
        if len(seats.gpus) < least or not sum_of(seats.caps) > 0:
            for gpu, slot in sorted(zip(seats.gpus.tolist(), seats.slots.tolist(), strict=True), reverse=True):
                d.stop(gpu, slot)
            unserved[service] = total
            continue
        rates = share_total(d.line_rate[seats.gpus, seats.slots], seats.caps, total, least)
        d.x.rate[seats.gpus, seats.slots] = rates
        rest = total - sum_of(rates)
        unserved[service] = rest if rest > NONE_UNSERVED_SHARE * total else 0.0
    return unserved


def difference(d: RunningBoard, services: Iterable[int], serial: int, unserved: dict[int, float]) -> Difference:
    """Returns what changed since the board was last at rest, and updates its lines."""
    b, x = d.b, d.x
    looked = {(gpu, slot) for gpu in d.stirred for slot in range(int(b.count[gpu]))}
    if seated := [d.seats(service) for service in services]:
        gpus, slots = (np.concatenate(numbers) for numbers in zip(*seated, strict=True))
        rates = x.rate[gpus, slots]
        differs = np.abs(d.line_rate[gpus, slots] - rates) > 1e-12 * rates
        differs |= d.line_batch[gpus, slots] != b.batch[gpus, slots]
        looked.update(zip(gpus[differs].tolist(), slots[differs].tolist(), strict=True))
    seats = sorted(looked)
    made = zip(seats, instances_at(d, seats, serial), strict=True)
    changed = [(seat, line) for seat, line in made if line is not d.lines[seat[0]][seat[1]]]
    after = [line for _, line in changed]
    d.set_lines([seat for seat, _ in changed], after)
    fresh = {id(line) for line in after}
    before = []
    for gpu in ({gpu for gpu, _ in seats} | d.stirred) & d.saved.keys():
        stays = {id(line) for line in d.lines[gpu] if id(line) not in fresh}
        before += [line for line in d.saved[gpu][-1] if line is not None and id(line) not in stays]
    return Difference(tuple(before), tuple(after), unserved)


def instances_at(d: RunningBoard, seats: Sequence[tuple[int, int]], serial: int) -> list[Instance]:
    """Returns the instances at these seats, the same objects where nothing changed; without latencies yet."""
    t, b, x = d.t, d.b, d.x
    at = np.array(seats, dtype=np.int64).reshape(-1, 2).T
    exec_ms = d.exec_ms(at[0], at[1])
    offers, sms, memory = (rows[*at].tolist() for rows in (b.offer, b.sm, x.memory))
    batches, rates = t.batches[b.batch[*at]].tolist(), x.rate[*at].tolist()
    services = [t.services[number] for number in t.offer_service[offers].tolist()] if seats else []
    of = [t.problem.services[name] for name in services]
    waits = timeouts(of, batches, exec_ms * t.margin, rates)
    times = exec_ms.tolist()
    found = []
    for k, (gpu, slot) in enumerate(seats):
        old, wait = d.lines[gpu][slot], waits[k]
        if wait is None:
            wait = 0.0  # it carries too much: the judge refuses it, and the change is taken back
        fields = (sms[k], memory[k])
        if old is not None:
            if wait and abs(wait - old.batch_timeout_ms) <= 1e-9 * max(1.0, wait):
                wait = old.batch_timeout_ms
            if (batches[k], wait, *fields, rates[k]) == _tuning(old):
                found.append(old)
                continue
            found.append(
                Instance(
                    old.id, old.service, old.node, old.gpu, old.variant, batches[k], wait, *fields, old.clock_mhz,
                    rates[k], times[k],
                )
            )  # fmt: skip
            continue
        serial += 1
        node, index = d.place_of[gpu]
        clocks = t.problem.type_of(node).clocks_mhz
        clock_mhz = min(clocks, key=lambda clock, at=gpu: abs(clocks[-1] / clock - b.clock[at]))  # type: ignore[misc]
        found.append(
            Instance(
                f"{services[k]}/{serial}", services[k], node, index, t.offer_variant[offers[k]], batches[k], wait,
                *fields, clock_mhz, rates[k], times[k],
            )
        )  # fmt: skip
    return found


def predict_lines(d: RunningBoard) -> tuple[Instance, ...]:
    """Returns all instances by GPU, with their predictions."""
    seats = [(gpu, slot) for gpu in np.flatnonzero(d.b.count).tolist() for slot in range(int(d.b.count[gpu]))]
    exec_ms = d.exec_ms([gpu for gpu, _ in seats], [slot for _, slot in seats])
    found = []
    for (gpu, slot), time in zip(seats, exec_ms.tolist(), strict=True):
        line = d.lines[gpu][slot]
        assert line
        if abs(line.exec_ms - time) > 1e-9 * time or not line.latency_ms:
            of = d.t.problem.services[line.service]
            wait = min(line.batch_timeout_ms, time * d.t.margin)
            latency_ms = latency_at(
                line.batch, time * d.t.margin, line.rate_per_second, of.percentile, wait, of.variation
            )
            line = replace(line, exec_ms=time, latency_ms=float(latency_ms))
        found.append(line)
    return tuple(found)


def _tuning(line: Instance) -> tuple[int, float, int, float, float]:
    """Returns what may change of a line that stays on its GPU."""
    return (line.batch, line.batch_timeout_ms, line.sm_percent, line.memory_gib, line.rate_per_second)
