"""Spares changes of a plan: leaves running what may stay, where the same GPUs are emptied without its change.

A search fills GPUs from nothing and knows little of what runs there, so that much of what it changes saves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.replan.cover import may_go
from solvers.planning.replan.kernels import capacities, fits
from solvers.planning.replan.running_board import Row, RunningBoard

MOST_TRIES = 200  # to take changes back
CLOSE_SHARE = 1e-7  # of a rate: a smaller lack is rounding
SUM = 1e-9  # by which sums of floats may differ


@dataclass(frozen=True, slots=True)
class TakenBack:
    """GPUs that become what they were; or one instance alone that runs on its GPU again, by its former slot."""

    gpus: tuple[int, ...]
    slot: int | None = None


class SparedChanges:
    """The changes on a board since it was at rest; of these services alone."""

    def __init__(self, d: RunningBoard, services: Sequence[int]) -> None:
        self.board = d
        self._need = {service: min(float(d.w.rate[service]), self._carried(service)) for service in services}

    def spare(self) -> bool:
        """Takes back as many changes as possible; returns whether it took back any."""
        if not self._saves():
            return False
        found, left = False, MOST_TRIES
        while left:
            for tries, way in enumerate(islice(self._ways(), left), 1):
                if self._try(way):
                    found, left = True, left - tries
                    break
            else:
                break
        return found

    def _saves(self) -> bool:
        """Returns whether the GPUs that are emptied cost more than those that are opened."""
        d = self.board
        emptied = [float(d.x.price[gpu]) * (bool(row[0]) - bool(d.b.count[gpu])) for gpu, row in d.saved.items()]
        return sum(emptied) > SUM

    def _ways(self) -> Iterator[TakenBack]:
        """Yields what may be taken back: GPUs, those with most changes first, single instances, pairs of GPUs."""
        d = self.board
        made = {gpu: self._made(gpu) for gpu in sorted(d.saved) if d.b.count[gpu] and d.saved[gpu][0]}
        changed = [gpu for gpu, count in made.items() if count or d.saved[gpu][0] != d.b.count[gpu]]
        changed.sort(key=lambda gpu: -made[gpu])
        yield from (TakenBack((gpu,)) for gpu in changed)
        for gpu in changed:
            if d.b.clock[gpu] != d.saved[gpu][1]:  # all instances of a GPU have one clock
                continue
            here = {id(line) for line in d.lines[gpu] if line}
            yield from (TakenBack((gpu,), k) for k, line in enumerate(d.saved[gpu][-1]) if id(line) not in here)
        services = {gpu: self._services_on(gpu) for gpu in changed}
        pairs = (pair for pair in combinations(changed, 2) if not services[pair[0]].isdisjoint(services[pair[1]]))
        yield from map(TakenBack, pairs)

    def _services_on(self, gpu: int) -> set[int]:
        """Returns the services on a GPU, before or now."""
        d = self.board
        now, before = d.b.offer[gpu, : d.b.count[gpu]], d.saved[gpu][2]
        return {*d.w.offer_service[now].tolist(), *d.w.offer_service[before].tolist()}

    def _try(self, way: TakenBack) -> bool:
        """Takes changes back, and stops what is not needed then; does nothing unless fewer changes do as much."""
        d = self.board
        before, most = {gpu: d.row(gpu) for gpu in way.gpus}, sum(map(self._made, way.gpus))
        services = set().union(*map(self._services_on, way.gpus)) & self._need.keys()
        for gpu in way.gpus:
            if way.slot is None:
                self._put(gpu, d.saved[gpu])
            else:
                self._return(gpu, way.slot)
        if self._is_right(way.gpus, services):
            stopped = self._stop_new(sorted(services))
            if stopped or sum(map(self._made, way.gpus)) < most:
                return True
        for gpu, row in before.items():
            self._put(gpu, row)
        return False

    def _put(self, gpu: int, row: Row) -> None:
        d = self.board
        d.put(gpu, row)
        for slot, line in enumerate(d.lines[gpu]):
            d.x.rate[gpu, slot] = line.rate_per_second if line else d.b.cap[gpu, slot]

    def _return(self, gpu: int, k: int) -> None:
        """Starts an instance again that ran on this GPU, in place of a new one of its service there."""
        d = self.board
        _, _, offers, sms, batches, _, memory, lines = d.saved[gpu]
        service = d.w.offer_service[offers[k]]
        here = d.w.offer_service[d.b.offer[gpu, : d.b.count[gpu]]]
        others = [slot for slot in np.flatnonzero(here == service).tolist() if d.lines[gpu][slot] is None]
        if others:
            d.stop(gpu, others[0])
        if d.b.count[gpu] == d.b.offer.shape[1]:
            return
        slot = d.start(gpu, int(offers[k]), int(sms[k]), int(batches[k]), float(memory[k]), lines[k])
        line = lines[k]
        d.x.rate[gpu, slot] = line.rate_per_second if line else 0.0

    def _is_right(self, gpus: Sequence[int], services: Iterable[int]) -> bool:
        d = self.board
        nodes = [int(d.b.node[gpu]) for gpu in gpus]
        return (
            all(fits(d.w, d.b, d.x, gpu) for gpu in gpus)
            and min(d.b.cpu[nodes].min(), d.b.host[nodes].min()) >= -SUM
            and min(d.x.gpus_left.min(initial=0.0), d.x.price_left.min(initial=0.0)) >= -SUM
            and all(self._carried(service) >= self._need[service] * (1 - CLOSE_SHARE) for service in services)
        )

    def _stop_new(self, services: Iterable[int]) -> int:
        """Stops new instances that are not needed, the largest first; returns how many."""
        d, count = self.board, 0
        for service in services:
            gpus, slots, caps = self._capacities(service)
            over = float(caps.sum()) - self._need[service]
            gone = []
            for k in np.argsort(-caps, kind="stable").tolist():
                gpu, slot = int(gpus[k]), int(slots[k])
                is_spare = d.lines[gpu][slot] is None and caps[k] <= over * (1 + CLOSE_SHARE)
                if is_spare and may_go(d, gpu, slot):
                    over -= float(caps[k])
                    gone.append((gpu, slot))
            for gpu, slot in sorted(gone, reverse=True):  # the last slot first: it fills the gap
                d.stop(gpu, slot)
            count += len(gone)
        return count

    def _made(self, gpu: int) -> int:
        """Returns how many instances start on this GPU or take another share there."""
        d = self.board
        sms = d.saved[gpu][3]
        was = {id(line): int(sms[k]) for k, line in enumerate(d.saved[gpu][-1])}
        return sum(
            line is None or was.get(id(line)) != int(d.b.sm[gpu, slot]) for slot, line in enumerate(d.lines[gpu])
        )

    def _carried(self, service: int) -> float:
        return float(self._capacities(service)[2].sum())

    def _capacities(self, service: int) -> tuple[Ints, Ints, Floats]:
        """Returns GPU, slot and what each instance of a service may carry with its best batch."""
        d = self.board
        gpus, slots = d.seats(service)
        now, best, by = np.zeros(len(gpus)), np.zeros(len(gpus)), np.zeros(len(gpus), dtype=np.int64)
        capacities(d.w, d.b, d.x, gpus, slots, now, best, by)
        return gpus, slots, np.maximum(now, np.minimum(best, d.w.most_rate[service]))
