"""Finds the batch and the smallest SM% with which an instance carries a rate beside its neighbours (M5).

Mudi's rule is (W / b) P(b, SM%, psi) <= SLO. W is not published as a formula, so the longest batch that keeps the SLO
at this rate comes from the latency table that judges every plan; given that, the SM% are Mudi's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from math import inf
from typing import NamedTuple

from solvers.mudi.sharing.closed import find_needed_percent
from solvers.mudi.sharing.find import Ends, find
from solvers.mudi.sharing.problem import SharedGpu, SharingResident
from solvers.planning.carried import ROUNDING_SHARE
from solvers.planning.fleet.grids import RateTerms
from solvers.planning.fleet.offers import SpareRoom
from solvers.planning.problem import Curve, Instance, Problem, Profile, Service

STEPS = 40  # of the bisection
SEARCH_BOXES = 2000  # where a pressure falls with SM%
SAFE_SHARE = 1e-6  # of a batch's time
STEADY_SM_PERCENT = 10  # an instance with so many SMs more than it needs is not resized


@dataclass(frozen=True, slots=True)
class MudiResident:
    """An instance on a GPU, and the rate that it is to carry."""

    seat: Instance
    service: Service
    profile: Profile
    rate_per_second: float
    is_running: bool
    batch: int | None = None  # the only one allowed; None: any


def longest_exec_ms(problem: Problem, service: Service, batch: int, rate_per_second: float) -> float:
    """Returns the longest time of a batch, neighbours included, with which an instance carries this rate."""
    return _longest(RateTerms.of(problem.policy, service), batch, rate_per_second)


class FittedServices(NamedTuple):
    """The instances on a GPU with their batches and SM%, and the room that they leave."""

    seats: tuple[Instance, ...]
    room: SpareRoom
    gpu: SharedGpu  # whose smallest SM% are
    percents: Ends  # in closed form


def fit_services(
    problem: Problem, residents: Sequence[MudiResident], pressure: float, room: SpareRoom
) -> FittedServices | None:
    """Returns the instances in this room, beside others of this pressure; None if they do not fit."""
    gpu = share_at_their_batches(problem, residents, pressure, room.memory_gib)
    percents = least_percents(gpu) if gpu else None
    if gpu is None or percents is None:
        return None
    seats = [_seat(*each) for each in zip(residents, gpu.residents, percents, strict=True)]
    for seat in seats:
        room = room.less(seat.sm_percent, seat.memory_gib)
    return None if room.is_exceeded else FittedServices(tuple(seats), room, gpu, percents)


def share_at_their_batches(
    problem: Problem, residents: Sequence[MudiResident], pressure: float, free_gib: float
) -> SharedGpu | None:
    """Returns the GPU with each instance at its batch, for which SM% are to be found; None if no batch is enough."""
    pressure += problem.policy.share_pressure * (1 + pressure) if problem.policy.pricing == "share" else 0.0
    chosen = [_batch(problem, resident, pressure, free_gib) for resident in residents]
    known = tuple(found for found in chosen if found)
    return SharedGpu(known, pressure) if len(known) == len(chosen) else None


def least_percents(gpu: SharedGpu) -> Ends | None:
    """Returns the smallest SM% of each instance, None if they do not fit; in closed form.

    Placements are tried by it: on one piece of a line the answer can be written down, at a thousandth of the time
    that a convex solver takes.
    """
    return find(gpu, SEARCH_BOXES).percents


def _seat(resident: MudiResident, found: SharingResident, least: int) -> Instance:
    seat = resident.seat
    is_kept = resident.is_running and seat.batch == found.batch and 0 <= seat.sm_percent - least <= STEADY_SM_PERCENT
    sm_percent = seat.sm_percent if is_kept else least
    return replace(seat, batch=found.batch, sm_percent=sm_percent, memory_gib=resident.profile.memory_gib[found.batch])


def _batch(problem: Problem, resident: MudiResident, pressure: float, free_gib: float) -> SharingResident | None:
    """Returns the instance at the batch that needs the fewest SMs; a running one keeps a batch that is as good."""
    best: tuple[tuple[int, bool, int], SharingResident] | None = None
    for batch, curve in resident.profile.latency_ms.items():
        if resident.batch not in (None, batch):
            continue
        most_ms = longest_exec_ms(problem, resident.service, batch, resident.rate_per_second)
        if most_ms <= 0 or resident.profile.memory_gib[batch] > free_gib:
            continue
        found = _sharing(resident, batch, curve, most_ms)
        percent = find_needed_percent(found, pressure)
        if percent is not None:
            key = (percent, batch != resident.seat.batch, -batch)
            best = min(best or (key, found), (key, found), key=lambda entry: entry[0])
    return best[1] if best else None


def _sharing(resident: MudiResident, batch: int, curve: Curve, most_ms: float) -> SharingResident:
    slo_ms, demand = resident.service.slo_ms, resident.profile.demand
    return SharingResident(
        name=resident.seat.id,
        batch=batch,
        latency_ms=_falling(curve),
        slo_ms=slo_ms,
        rate_per_second=resident.rate_per_second,
        outstanding=batch * slo_ms / most_ms,
        pressure=demand.whole_pressure,
        sensitivity=demand.most_sensitivity,
    )


def _falling(curve: Curve) -> Curve:
    """Returns the curve up to where it rises again: more SMs would not help."""
    lows = [inf, *(ms for _, ms in curve)]
    pairs = zip(curve, lows, strict=False)
    return tuple(point for point, _ in takewhile(lambda pair: pair[0][1] <= pair[1], pairs))


@lru_cache(maxsize=65536)
def _longest(terms: RateTerms, batch: int, rate: float) -> float:
    low, high = 0.0, terms.slo_ms
    for _ in range(STEPS):
        middle = (low + high) / 2
        is_enough = terms.accepted_rate(batch, middle) * (1 - 2 * ROUNDING_SHARE) >= rate
        low, high = (middle, high) if is_enough else (low, middle)
    return low * (1 - SAFE_SHARE)
