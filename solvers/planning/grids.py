"""Profiles by batch and SM%, and the loads that batches accept, as the loops of planners read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import ref

import numpy as np

from solvers.latency import limits, used_loads
from solvers.planning.problem import Policy, Profile, Service
from solvers.planning.search.tables import Floats, Ints, everywhere, inside

Known = TypeVar("Known")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ProfileGrid:
    """A profile by batch and SM%, as loops read it."""

    batches: Ints
    exec_ms: Floats  # [batch, SM%], alone at the highest clock; infinite where not profiled
    memory_gib: Floats  # [batch]
    pressure: Floats  # [SM%]
    power_w: Floats  # [SM%]
    row_of: Mapping[int, int]  # batch -> its row

    @classmethod
    def of(cls, profile: Profile) -> ProfileGrid:
        batches = sorted(profile.latency_ms)
        return cls(
            np.array(batches, dtype=np.int64),
            np.ascontiguousarray([inside(profile.latency_ms[batch]) for batch in batches]),
            np.array([profile.memory_gib[batch] for batch in batches], dtype=np.float64),
            everywhere([profile.demand.pressure])[0].copy(),
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
    return np.ascontiguousarray(used_loads(rows[batches], used.share, used.most * (1 + policy.exec_margin)))
