"""Profiles by batch and SM%, and the loads that batches accept, as the loops of planners read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit
from solvers.latency import limit_loads, limits, max_rate
from solvers.latency.kernels import accepted_load
from solvers.planning.judge.readings import value_at
from solvers.planning.pressures import PressureCurve, Pressures
from solvers.planning.problem import Curve, Policy, Profile, Service

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SM = 101  # SM% 0..100 as an index
ROUNDING = 1 - 1e-9  # of a rate: what sums of floats may add

Known = TypeVar("Known")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ProfileGrid:
    """A profile by batch and SM%, as loops read it."""

    batches: Ints
    exec_ms: Floats  # [batch, SM%], alone at the highest clock; infinite where not profiled
    memory_gib: Floats  # [batch]
    pressure: Pressures  # [SM%]
    power_w: Floats  # [SM%]
    row_of: Mapping[int, int]  # batch -> its row

    @classmethod
    def of(cls, profile: Profile) -> ProfileGrid:
        batches = sorted(profile.latency_ms)
        return cls(
            np.array(batches, dtype=np.int64),
            np.array([inside(profile.latency_ms[batch]) for batch in batches]).reshape(-1, SM),
            np.array([profile.memory_gib[batch] for batch in batches], dtype=np.float64),
            pressures_everywhere(profile.demand.pressure),
            everywhere([profile.demand.power_w])[0].copy(),
            {batch: row for row, batch in enumerate(batches)},
        )


class Kept(Generic[Known, Found]):
    """What was found for objects that cannot be hashed, each once while it lives."""

    def __init__(self, find: Callable[[Known], Found]) -> None:
        self._find, self._found = find, dict[int, tuple[ref[Known], Found]]()

    def __call__(self, about: Known) -> Found:
        kept = self._found.get(key := id(about))
        if kept is None or kept[0]() is not about:
            kept = self._found[key] = ref(about, lambda _: self._found.pop(key, None)), self._find(about)
        return kept[1]


read_grid = Kept(ProfileGrid.of)


def read_loads(service: Service, policy: Policy, batches: Ints) -> Floats:
    """Returns the loads that each of these batches accepts under the service's percentile, by SLO / exec."""
    rows, used = limits(service.percentile, batches.tolist(), service.variation).loads, service.used_load
    return np.ascontiguousarray(limit_loads(rows[batches], used.share, used.most * (1 + policy.exec_margin)))


@njit("void(float64[:, ::1], int64[::1], float64[::1], float64[::1])")
def accepted_loads(rows: Floats, batches: Ints, ratios: Floats, into: Floats) -> None:
    """Writes the load that each accepts at its ratio of SLO to exec."""
    for i in range(batches.shape[0]):
        into[i] = accepted_load(rows[batches[i]], ratios[i])


class RateTerms(NamedTuple):
    """What an instance's rate depends on besides its batch and its time."""

    slo_ms: float
    percentile: float
    variation: float
    exec_margin: float
    utilization: float

    @classmethod
    def of(cls, policy: Policy, service: Service) -> RateTerms:
        return cls(service.slo_ms, service.percentile, service.variation, policy.exec_margin, policy.utilization)

    def accepted_rate(self, batch: int, exec_ms: float) -> float:
        """Returns the most requests a second that an instance carries within its SLO and utilization, 0 if none.

        `exec_ms` is the time of a batch among its neighbours at its clock, without the margin.
        """
        judged_ms = exec_ms * (1 + self.exec_margin)
        if not 0 < judged_ms <= self.slo_ms:
            return 0.0
        rate, _ = max_rate(batch, judged_ms, self.slo_ms, self.percentile, self.variation)
        return min(rate, self.utilization * batch * 1000 / exec_ms)


def accepted_rate(policy: Policy, service: Service, batch: int, exec_ms: float) -> float:
    """Returns the most requests a second that an instance of a service carries at this time of a batch."""
    return RateTerms.of(policy, service).accepted_rate(batch, exec_ms)


class BatchRate(NamedTuple):
    """What a batch carries at most where an instance runs, with its time there and its memory."""

    batch: int
    rate_per_second: float
    exec_ms: float
    memory_gib: float

    @classmethod
    def of(
        cls, policy: Policy, service: Service, profile: Profile, batch: int, sm_percent: float, slower: float
    ) -> BatchRate:
        """Returns a batch at this SM%, so much slower by neighbours and clock than alone."""
        exec_ms = slower * value_at(profile.latency_ms[batch], sm_percent)
        rate = accepted_rate(policy, service, batch, exec_ms) * ROUNDING
        return cls(batch, rate, exec_ms, profile.memory_gib[batch])


def inside(curve: Curve) -> Floats:
    """Interpolates a curve at each SM%; the result is infinite beyond its points."""
    points, values = zip(*curve, strict=True)
    between: Floats = np.interp(np.arange(SM), points, values, left=np.inf, right=np.inf)
    return between


def everywhere(curves: Iterable[Curve]) -> Floats:
    """Interpolates each curve at each SM%; the result is flat beyond its points."""
    at = np.arange(SM)
    rows = [np.interp(at, [sm for sm, _ in curve], [value for _, value in curve]) for curve in curves]
    return np.array(rows) if rows else np.zeros((0, SM))


def pressures_everywhere(curve: PressureCurve) -> Pressures:
    """Interpolates a curve of pressures at each SM%; the result is flat beyond its points."""
    found = np.empty(SM, np.complex128)
    parts = [tuple((sm, value.real) for sm, value in curve), tuple((sm, value.imag) for sm, value in curve)]
    found.real, found.imag = everywhere(parts)
    return found
