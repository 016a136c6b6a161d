"""Chooses batches and clocks of what runs, at its shares, by the exact search and the knapsack over the budget's watts.

Settings that carry the load stay until others draw a tenth less: a node needs no new clock for each small change.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

import numpy as np

from solvers.morak.fleet.board import MorakBoard, MorakGpu
from solvers.morak.power.knapsack import Front, exact
from solvers.morak.power.options import PowerOption
from solvers.planning.carried import accepted_rates
from solvers.planning.stopping import spare_instances

HEADROOM = 1.1  # of a service's rate: what is newly chosen carries so much
WATTS_SHARE = 1.1  # settings that draw more than so many times the least are replaced
KNAPSACK_SUMS = 200_000


def spare(board: MorakBoard) -> set[str]:
    """Returns the instances that are not needed: the rest of their service carries a quarter more than its rate."""
    best = _best_rates(board)
    gone: set[str] = set()
    for service in board.problem.services.values():
        own = [seat.id for seat in board.seats if seat.service == service.name]
        ranked = sorted(own, key=lambda name: (best[name], name))
        gone |= spare_instances(service, [(name, best[name]) for name in ranked])
    return gone


def tune(board: MorakBoard) -> bool:
    """Sets batches and clocks of what runs; returns whether all stayed. What no setting admits is dropped."""
    used = [gpu for gpu in board.gpus.values() if gpu.seats]
    if not used:
        return False
    best = _best_rates(board)
    totals = dict.fromkeys(board.problem.services, 0.0)
    for seat in board.seats:
        totals[seat.service] += best[seat.id]
    chosen: list[list[PowerOption]] = []
    for gpu in used:
        wanted: dict[str, float] = {}
        for seat in gpu.seats:
            rate = HEADROOM * board.problem.services[seat.service].rate_per_second
            part = rate * best[seat.id] / totals[seat.service] if totals[seat.service] else 0.0
            wanted[seat.service] = max(wanted.get(seat.service, 0.0), part, 1e-3)
        chosen.append(board.options(gpu, wanted, grows=False))
    fresh = _choose_within_budget(board, used, chosen)
    if not _is_better(board, used, fresh):
        return True
    for gpu, option in zip(used, fresh, strict=True):
        gpu.seats = board.seated(gpu, option, {})
    board.count_rooms()
    return False


def room_w(board: MorakBoard, gpus: Collection[MorakGpu]) -> float | None:
    """Returns the watts above idle that the budget leaves to these GPUs beside the jobs on all others.

    None without a budget.
    """
    budget = board.problem.policy.power_budget_w
    if budget is None:
        return None
    own = {gpu.place for gpu in gpus}
    of_jobs = sum(board.drawn_w(gpu, ()) for gpu in board.gpus.values() if gpu.jobs and gpu.place not in own)
    return budget - sum(gpu.items.type.idle_w for gpu in board.gpus.values()) - of_jobs


def _best_rates(board: MorakBoard) -> dict[str, float]:
    """Returns the most that each instance carries with the best batches and clock of its GPU."""
    found: dict[str, float] = {}
    for gpu in board.gpus.values():
        if not gpu.seats:
            continue
        option = board.options(gpu, {seat.service: inf for seat in gpu.seats}, grows=False)[-1]
        seats = board.seated(gpu, option, {})
        for seat, rate in zip(seats, accepted_rates(board.problem, seats, gpu.jobs), strict=True):
            found[seat.id] = rate
        found.update({seat.id: 0.0 for seat in gpu.seats if seat.id not in found})
    return found


def _choose_within_budget(
    board: MorakBoard, gpus: list[MorakGpu], options: list[list[PowerOption]]
) -> list[PowerOption]:
    """Returns an option for each GPU: the best one, or what the knapsack over the budget's watts has chosen."""
    room = room_w(board, gpus)
    if room is None:
        return [found[-1] for found in options]
    fronts = [
        Front(np.array([o.watts for o in found]), np.array([o.worth_per_second for o in found]), 1) for found in options
    ]
    if room <= 0:
        return [found[0] for found in options]
    picks = exact(fronts, room, KNAPSACK_SUMS).picks
    return [found[pick[0]] for found, pick in zip(options, picks, strict=True)]


def _is_better(board: MorakBoard, gpus: list[MorakGpu], fresh: list[PowerOption]) -> bool:
    """Returns whether the present settings break a limit, carry less than the rates, or waste a tenth of the watts."""
    problem, now, then = board.problem, 0.0, 0.0
    carried: dict[str, float] = dict.fromkeys(problem.services, 0.0)
    possible: dict[str, float] = dict.fromkeys(problem.services, 0.0)
    for gpu, option in zip(gpus, fresh, strict=True):
        watts = board.drawn_w(gpu, gpu.seats)
        if watts + gpu.items.type.idle_w > gpu.items.type.max_w or len({seat.clock_mhz for seat in gpu.seats}) > 1:
            return True
        now, then = now + watts, then + option.watts
        for into, seats in ((carried, gpu.seats), (possible, board.seated(gpu, option, {}))):
            for name, rate in board.carried(gpu, seats).items():
                into[name] += rate
    room = room_w(board, gpus)
    if room is not None and now > room:
        return True
    short = any(
        carried[name] < min(service.rate_per_second, possible[name]) * (1 - 1e-9)
        for name, service in problem.services.items()
    )
    return short or now > WATTS_SHARE * then
