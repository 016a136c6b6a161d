"""Settings and measurements as arrays, on the logarithms that the candidates work with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from solvers.curves.measurement import Measurement, Setting

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CurvePlaces:
    """Settings as arrays: batch, share of the SMs in percent, and the highest clock divided by the clock."""

    batch: Floats
    share: Floats
    slowing: Floats

    def __len__(self) -> int:
        return len(self.batch)

    def without(self, index: int) -> CurvePlaces:
        return CurvePlaces(*(np.delete(values, index) for values in (self.batch, self.share, self.slowing)))

    def only(self, index: int) -> CurvePlaces:
        return CurvePlaces(*(values[index : index + 1] for values in (self.batch, self.share, self.slowing)))


@dataclass(frozen=True)
class Observations:
    """Measured latencies as logarithms, on which relative errors are alike everywhere."""

    places: CurvePlaces
    logarithms: Floats
    variance: Floats  # of each mean, as the spread of its own samples states it

    def __len__(self) -> int:
        return len(self.logarithms)

    def without(self, index: int) -> Observations:
        return replace(
            self,
            places=self.places.without(index),
            logarithms=np.delete(self.logarithms, index),
            variance=np.delete(self.variance, index),
        )


@dataclass(frozen=True)
class CurvePrediction:
    """The mean of log(latency), how unsure that mean is, and the variance of a repeated measurement."""

    mean: Floats
    variance: Floats
    noise: Floats

    @property
    def deviation(self) -> Floats:
        """The standard deviation of one more measurement."""
        result: Floats = np.sqrt(self.variance + self.noise)
        return result


def stack_places(of: Sequence[CurvePlaces]) -> CurvePlaces:
    """Returns equally many places of each as rows."""
    return CurvePlaces(*(np.array(rows) for rows in zip(*((at.batch, at.share, at.slowing) for at in of), strict=True)))


def places(settings: Iterable[Setting], highest_clock_mhz: int) -> CurvePlaces:
    rows = [(s.batch, s.sm_percent, highest_clock_mhz / s.clock_mhz) for s in settings]
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return CurvePlaces(*columns)


def observations(measurements: Sequence[Measurement], highest_clock_mhz: int) -> Observations:
    return Observations(
        places((m.setting for m in measurements), highest_clock_mhz),
        np.log(np.array([m.latency_ms for m in measurements])),
        np.array([m.noise**2 for m in measurements]),
    )
