"""Adds instances for what is short: round by round the GPU whose best option carries most of it for its price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf

import numpy as np

from solvers.morak.fleet.board import MorakBoard, MorakGpu
from solvers.morak.fleet.items import price_weight
from solvers.morak.fleet.tuning import HEADROOM, KNAPSACK_SUMS, room_w
from solvers.morak.power.knapsack import Front, exact
from solvers.morak.power.options import PowerOption
from solvers.planning.problem import Instance, Place

EXACTLY = 1e-6  # of a rate
AGREED_SHARE = 0.98  # of an option's gain; where other GPUs have taken more of it, the GPU is asked again
MOST_ROUNDS = 400
Rates = dict[str, float]


def grow(board: MorakBoard, reused: Mapping[tuple[Place, str, str], Sequence[str]]) -> int:
    """Adds instances until no GPU can carry more of what is short; returns how many it added."""
    return _Growth(board, reused).run()


class _Growth:
    def __init__(self, board: MorakBoard, reused: Mapping[tuple[Place, str, str], Sequence[str]]) -> None:
        self._board, self._reused = board, reused
        services = board.problem.services
        self._carried = {place: board.carried(gpu, gpu.seats) for place, gpu in board.gpus.items() if gpu.seats}
        self._watts = {
            place: board.drawn_w(gpu, gpu.seats) for place, gpu in board.gpus.items() if gpu.seats or gpu.jobs
        }
        self._have: Rates = dict.fromkeys(services, 0.0)
        for carried in self._carried.values():
            self._add(carried, 1)
        self._counts = Counter(seat.service for seat in board.seats)
        self._target: Rates = {}
        for name, service in services.items():
            is_short = self._have[name] < service.rate_per_second * (1 - EXACTLY) or self._lacks(name)
            self._target[name] = service.rate_per_second * (HEADROOM if is_short else 1.0)
        self._most = {name: target / max(1, services[name].min_instances) for name, target in self._target.items()}
        self._short = {name for name, target in self._target.items() if target > services[name].rate_per_second}
        self._added = 0

    def run(self) -> int:
        for _ in range(MOST_ROUNDS):
            rest = self._rest()
            if not any(rest[name] > EXACTLY * self._target[name] for name in self._short) or not self._round(rest):
                break
        return self._added

    def _lacks(self, name: str) -> bool:
        return self._counts[name] < self._board.problem.services[name].min_instances

    def _rest(self) -> Rates:
        """Returns the rates that are still to be carried; a part of the rate for each instance that must be there."""
        found = {}
        for name, target in self._target.items():
            found[name] = max(0.0, target - self._have[name])
            if found[name] <= EXACTLY * target:
                found[name] = target / self._board.problem.services[name].min_instances if self._lacks(name) else 0.0
        return found

    def _round(self, rest: Rates) -> bool:
        """Puts options on GPUs while they carry what was counted on; returns whether any GPU took one."""
        ranked = self._rank(rest)
        accepted = False
        for claimed, gpu, option in ranked:
            gain, seats = self._gain(gpu, option, self._rest())
            if gain <= EXACTLY * claimed or (accepted and gain < AGREED_SHARE * claimed):
                continue
            accepted |= self._accept(gpu, seats)
        return accepted

    def _rank(self, rest: Rates) -> list[tuple[float, MorakGpu, PowerOption]]:
        found: list[tuple[MorakGpu, PowerOption, list[PowerOption]]] = []
        short = [name for name, rate in rest.items() if rate]
        for gpu in self._board.gpus.values():
            own = self._carried.get(gpu.place, {})
            wanted = self._list_wanted(gpu, rest, (*short, *(name for name, rate in own.items() if rate)))
            options = self._board.options(gpu, wanted, grows=True)
            now = PowerOption(self._watts.get(gpu.place, 0.0), self._worth(gpu, rest, own))
            better = [o for o in options if o.worth_per_second > now.worth_per_second * (1 + EXACTLY)]
            if better:
                thrifty = [o for o in better if o.watts <= now.watts]
                found.append((gpu, now, [*(thrifty[-1:] or [now]), *better[len(thrifty) :]]))
        ranked = [
            (option.worth_per_second - now.worth_per_second, gpu, option)
            for (gpu, now, _), option in zip(found, self._keep_within_budget(found), strict=True)
            if option is not now
        ]
        return sorted(ranked, key=lambda entry: (-self._divide_by_price(entry[1], entry[0]), -entry[0], entry[1].place))

    def _divide_by_price(self, gpu: MorakGpu, gain: float) -> float:
        return inf if gpu.was_used or gpu.seats else gain / gpu.items.pool.price_per_hour

    def _keep_within_budget(self, found: list[tuple[MorakGpu, PowerOption, list[PowerOption]]]) -> list[PowerOption]:
        room = room_w(self._board, self._board.gpus.values())
        if room is None:
            return [options[-1] for *_, options in found]
        room -= sum(self._watts.values())
        fronts = [
            Front(np.array([max(0.0, o.watts - now.watts) for o in options]),
                  np.array([o.worth_per_second for o in options]), 1)
            for _, now, options in found
        ]  # fmt: skip
        if room <= 0 or not fronts:
            return [options[0] for *_, options in found]
        picks = exact(fronts, room, KNAPSACK_SUMS).picks
        return [options[pick[0]] for (*_, options), pick in zip(found, picks, strict=True)]

    def _list_wanted(self, gpu: MorakGpu, rest: Rates, names: Iterable[str]) -> Rates:
        """Returns what a GPU may carry of these rates: what is short, and what it carries now."""
        own, found = self._carried.get(gpu.place, {}), {}
        for name in names:
            carries = own.get(name, 0.0)
            found[name] = min(carries + rest[name], max(self._most[name], carries))
        return found

    def _worth(self, gpu: MorakGpu, rest: Rates, carried: Rates) -> float:
        wanted, services = self._list_wanted(gpu, rest, carried), self._board.problem.services
        return sum(price_weight(services[name]) * min(rate, wanted[name]) for name, rate in carried.items())

    def _add(self, carried: Rates, times: int) -> None:
        for name, rate in carried.items():
            self._have[name] += times * rate

    def _gain(self, gpu: MorakGpu, option: PowerOption, rest: Rates) -> tuple[float, list[Instance]]:
        """Returns what an option adds, and its instances without those that have no room or carry nothing."""
        before = {seat.id for seat in gpu.seats}
        seats = []
        for seat in self._board.seated(gpu, option, self._reused):
            if seat.id in before or self._board.admits(gpu, seat):
                seats.append(seat)
            else:
                gpu.refused.add(seat.service)
        now = self._worth(gpu, rest, self._carried.get(gpu.place, {}))
        return self._worth(gpu, rest, self._board.carried(gpu, seats)) - now, seats

    def _accept(self, gpu: MorakGpu, seats: list[Instance]) -> bool:
        before = {seat.id for seat in gpu.seats}
        taken = []
        for seat in seats:
            if seat.id not in before:
                if not self._board.admits(gpu, seat):  # two of an option may share what is left of a tenant's limit
                    gpu.refused.add(seat.service)
                    continue
                self._board.take(gpu, seat)
                self._added += 1
            taken.append(seat)
        self._counts.subtract(seat.service for seat in gpu.seats)
        self._counts.update(seat.service for seat in taken)
        gpu.seats = taken
        self._add(self._carried.get(gpu.place, {}), -1)
        self._carried[gpu.place] = self._board.carried(gpu, taken)
        self._add(self._carried[gpu.place], 1)
        self._watts[gpu.place] = self._board.drawn_w(gpu, taken)
        return True
