"""Many shared GPUs as arrays: laid out once, then decided in one call whenever rates change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

from solvers.mudi.sharing.kernels import Floats, Whole, raise_from_least
from solvers.mudi.sharing.problem import Curve, SharedGpu


@dataclass(frozen=True, slots=True)
class Raised:
    """The SM% after raising, with residents in the order of the GPUs and of each GPU's residents."""

    percents: Whole  # of each resident; if its GPU is blocked, those reached until then
    totals: Whole  # of each GPU
    blocked: Whole  # of each GPU: 0, or 1 + the index of a resident for which no SM% is enough


@dataclass(frozen=True, slots=True)
class SharedFleet:
    """The arrays of all GPUs and residents, without the rates."""

    first: Whole
    latency_start: Whole
    latency_percents: Whole
    latency_ms: Floats
    pressure_start: Whole
    pressure_percents: Whole
    pressures: Floats
    sensitivity: Floats
    other_pressure: Floats
    most_exec_ms: Floats  # at the residents' own rates

    @classmethod
    def of(cls, gpus: Sequence[SharedGpu]) -> SharedFleet:
        residents = [resident for gpu in gpus for resident in gpu.residents]
        latencies = [resident.latency_ms for resident in residents]
        pressures = [resident.pressure for resident in residents]
        return cls(
            first=_starts([len(gpu.residents) for gpu in gpus]),
            latency_start=_starts([len(curve) for curve in latencies]),
            latency_percents=_percents(latencies),
            latency_ms=_values(latencies),
            pressure_start=_starts([len(curve) for curve in pressures]),
            pressure_percents=_percents(pressures),
            pressures=_values(pressures),
            sensitivity=np.array([resident.sensitivity for resident in residents], dtype=np.float64),
            other_pressure=np.array([gpu.other_pressure for gpu in gpus], dtype=np.float64),
            most_exec_ms=np.array([resident.most_exec_ms for resident in residents], dtype=np.float64),
        )

    def decide(self, most_exec_ms: Floats) -> Raised:
        """Returns the smallest SM% of every resident of every GPU."""
        percents = np.empty(len(most_exec_ms), dtype=np.int64)
        blocked = np.empty(len(self.first) - 1, dtype=np.int64)
        raise_from_least(
            self.first, self.latency_start, self.latency_percents, self.latency_ms,
            self.pressure_start, self.pressure_percents, self.pressures,
            self.sensitivity, most_exec_ms, self.other_pressure, percents, blocked,
        )  # fmt: skip
        upto = np.concatenate(([0], np.cumsum(percents)))
        return Raised(percents, upto[self.first[1:]] - upto[self.first[:-1]], blocked)


def _starts(lengths: list[int]) -> Whole:
    return np.array([0, *accumulate(lengths)], dtype=np.int64)


def _percents(curves: list[Curve]) -> Whole:
    return np.array([percent for percent, _ in chain.from_iterable(curves)], dtype=np.int64)


def _values(curves: list[Curve]) -> Floats:
    return np.array([value for _, value in chain.from_iterable(curves)], dtype=np.float64)
