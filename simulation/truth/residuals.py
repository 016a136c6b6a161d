"""The residuals of measured times over the physical load that explains them: a factor by batch and share of the SMs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulation.truth.fitting import KnownFigures
from simulation.truth.load import GpuPhysics, PhysicalLoad, times


@dataclass(frozen=True)
class Residuals:
    """Logarithms of factors, by batch; linear between the measured points and flat beyond them."""

    shares: Mapping[int, tuple[float, ...]]
    logs: Mapping[int, tuple[float, ...]]

    @classmethod
    def of(cls, known: KnownFigures, load: PhysicalLoad, gpu: GpuPhysics) -> Residuals:
        shares, logs = {}, {}
        for batch, curve in sorted(known.points.items()):
            shares[batch] = tuple(percent / 100 for percent, _ in curve)
            logs[batch] = tuple(
                float(np.log(ms / times(load, gpu, batch, percent / 100).alone)) for percent, ms in curve
            )
        return cls(shares, logs)

    def factor(self, batch: float, sm_share: float) -> float:
        """Returns measured over explained at this place."""
        batches = sorted(self.logs)
        found = [np.interp(sm_share, self.shares[size], self.logs[size]) for size in batches]
        return float(np.exp(np.interp(np.log(batch), np.log(batches), found)))
