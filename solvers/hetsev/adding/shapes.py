"""The shapes that an instance of a service may have on a type of GPU, and what each carries among neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from solvers.hetsev.adding import kernels
from solvers.planning.grids import ROUNDING, Floats, accepted_loads, read_grid, read_loads
from solvers.planning.problem import Policy, Profile, Service


@dataclass(frozen=True, slots=True)
class AddedShape:
    """A shape on a GPU, and the most that it carries there."""

    profile: Profile
    batch: int
    sm_percent: int
    memory_gib: float
    rate_per_second: float


@dataclass(frozen=True, slots=True)
class OfferedRoom:
    """The room that a GPU offers to one more instance, and the pressure there."""

    sm_percent: int
    memory_gib: float
    pressure: float  # of all that runs there
    watts: float  # above what all that runs there draws when busy
    slower: float = 1.0  # highest clock / clock

    def with_more(self, pressure: float) -> OfferedRoom:
        """Returns the same beside more pressure."""
        return OfferedRoom(self.sm_percent, self.memory_gib, self.pressure + pressure, self.watts, self.slower)


def rates(policy: Policy, service: Service, profile: Profile, around: OfferedRoom) -> Floats:
    """Returns the most that each batch and SM% carries there within the SLO: [batch, SM%]; 0 where it does not fit."""
    demand, offer = profile.demand, read_grid(profile)
    sms = np.arange(offer.exec_ms.shape[1])
    slower = (1 + demand.sensitivity * around.pressure) * around.slower**demand.clock_exponent
    exec_ms = offer.exec_ms * slower
    if policy.pricing == "share":
        left = np.maximum(0, around.sm_percent - sms)
        exec_ms = exec_ms * (1 + demand.sensitivity * policy.share_pressure * left / 100)
    judged = exec_ms * (1 + policy.exec_margin)
    fits = (judged <= service.slo_ms) & (offer.memory_gib <= around.memory_gib)[:, None]
    fits &= (sms <= around.sm_percent) & (sms > 0)
    fits &= offer.power_w * around.slower**-demand.power_exponent <= around.watts
    found = np.zeros(exec_ms.shape)
    at, sm = map(np.ascontiguousarray, np.nonzero(fits))
    if not len(at):
        return found
    loads = np.zeros(len(at))
    accepted_loads(read_loads(service, policy, offer.batches), at, service.slo_ms / judged[at, sm], loads)
    most = np.minimum(loads / (1 + policy.exec_margin), policy.utilization)
    found[at, sm] = 1000 * offer.batches[at] / exec_ms[at, sm] * most * ROUNDING
    return found


def cheapest(service: Service, profile: Profile, carried: Floats, need: float, memory_gib: float) -> AddedShape | None:
    """Returns the shape of which as many as the need takes hold the least of a GPU; None if none carries anything."""
    if not carried.any():
        return None
    with np.errstate(divide="ignore"):
        many = np.ceil(need / np.where(carried > 0, carried, np.nan) * ROUNDING)
    share = np.maximum(np.arange(carried.shape[1]) / 100, (read_grid(profile).memory_gib / memory_gib)[:, None])
    held = many * (np.ones_like(share) if service.is_dedicated else share)
    return _shape(profile, carried, np.where(np.isnan(held), inf, held))


def smallest(
    policy: Policy,
    service: Service,
    profile: Profile,
    rows: Floats,
    part: float,
    around: OfferedRoom,
    *,
    whole: bool,
) -> AddedShape | None:
    """Returns the smallest shape that carries this part there; unless it must be the whole part, the one with most.

    `rows` are the loads that its batches accept (`read_loads`).
    """
    demand, offer = profile.demand, read_grid(profile)
    slower = (1 + demand.sensitivity * around.pressure) * around.slower**demand.clock_exponent
    watts = around.watts * around.slower**demand.power_exponent
    idle = demand.sensitivity * policy.share_pressure if policy.pricing == "share" else 0.0
    batch, sm, rate = kernels.smallest(
        offer.exec_ms, offer.memory_gib, offer.power_w, offer.batches, rows, service.slo_ms, 1 + policy.exec_margin,
        policy.utilization, slower, around.sm_percent, around.memory_gib, watts, idle, part,
    )  # fmt: skip
    rate *= ROUNDING
    if batch < 0 or (whole and rate < part * ROUNDING):
        return None
    return AddedShape(profile, int(offer.batches[batch]), sm, float(offer.memory_gib[batch]), rate)


def _shape(profile: Profile, carried: Floats, price: Floats) -> AddedShape:
    batch, sm = divmod(int(np.argmin(price)), carried.shape[1])
    offer = read_grid(profile)
    return AddedShape(profile, int(offer.batches[batch]), sm, float(offer.memory_gib[batch]), float(carried[batch, sm]))


def least_sm(carried: Floats, part: float) -> int:
    """Returns the least SM% that carries this part; over 100 where none does."""
    enough = (carried >= part * ROUNDING).any(axis=0)
    return int(enough.argmax()) if enough.any() else carried.shape[1]
