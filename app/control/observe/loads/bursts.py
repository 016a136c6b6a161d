"""Believes how bursty a service's arrivals are: from windows that gateways count, in classes that noise does not cross.

With counts N of windows that last k SLOs, Var N = E N + variation x (E N)^2 x what a window of that length keeps of the
rate's scatter (`window_share`). The plan's model is fitted at one and at four SLOs, and the larger variation counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from agents.contract.gateways import FREE_WINDOWS, WINDOWS_A_BLOCK, WindowTotals
from solvers.latency.bursts import window_share

PLANNED_SCALES = (1, 4)  # a slower change is one of the rate, which the forecast follows
KEPT_BLOCKS = 400.0  # about so many recent blocks count
FEWEST_BLOCKS = 30.0
SURE_ERRORS = 4.0  # standard errors of a Poisson stream's scatter that chance does not reach
LEAST_EXCESS = 0.25  # of the dispersion above 1: less is not worth planning for
LEAST_VARIATION = 0.05**2  # a rate that scatters by less stays within what the forecast plans above the load
STEP = 1.5  # from class to class
ABOVE, BELOW = 1.1, STEP**1.75  # a class holds up to so much above it, and down to so much below it
HELD_SECONDS = 1800.0  # a class falls no sooner than this after the last change


@dataclass(slots=True)
class _Evidence:
    """Recent blocks of one scale."""

    blocks: float = 0.0
    spread: float = 0.0
    means: float = 0.0
    squares: float = 0.0

    def add(self, more: WindowTotals) -> None:
        weight = min(1.0, KEPT_BLOCKS / more.blocks)
        keep = max(0.0, 1.0 - more.blocks * weight / KEPT_BLOCKS)
        self.blocks = self.blocks * keep + more.blocks * weight
        self.spread = self.spread * keep + more.spread * weight
        self.means = self.means * keep + more.means * weight
        self.squares = self.squares * keep + more.squares * weight

    @property
    def dispersion(self) -> float:
        """The variance of the counts over their mean; 1 while there is little to tell from."""
        return self.spread / self.means if self.blocks >= FEWEST_BLOCKS and self.means > 0 else 1.0

    def variation(self, scale: int) -> float:
        """Returns the variation of the rate that explains the scatter, 0 where chance does."""
        excess = self.dispersion - 1.0
        chance = math.sqrt(2.0 / FREE_WINDOWS * self.squares + self.means / WINDOWS_A_BLOCK)
        if excess <= LEAST_EXCESS or excess * self.means <= SURE_ERRORS * chance:
            return 0.0
        squares = max(self.squares - self.spread / WINDOWS_A_BLOCK, 0.0)  # the scatter of the mean itself
        found = (self.spread - self.means) / (squares * window_share(scale)) if squares > 0 else 0.0
        return found if found >= LEAST_VARIATION else 0.0


@dataclass(slots=True)
class BurstBelief:
    """The class of a service's variation, and what it was measured from."""

    variation: float = 0.0  # the class that plans are made for
    _changed_at: float = -math.inf
    _evidence: dict[int, _Evidence] = field(default_factory=dict)

    def add(self, windows: Sequence[WindowTotals], now: float) -> None:
        """Takes blocks that were counted since the last report."""
        for counted in windows:
            if counted.blocks > 0:
                self._evidence.setdefault(counted.slos, _Evidence()).add(counted)
        measured = max((self._evidence[scale].variation(scale) for scale in PLANNED_SCALES if scale in self._evidence),
                       default=0.0)  # fmt: skip
        rises = measured > self.variation * ABOVE
        falls = measured < self.variation / BELOW and now - self._changed_at >= HELD_SECONDS
        if rises or falls:
            self.variation = STEP ** math.ceil(math.log(measured, STEP)) if measured > 0 else 0.0
            self._changed_at = now

    @property
    def burstiness(self) -> dict[str, float]:
        """The measured dispersion of counts, by the length of windows in SLOs. Keys are text, as records have them."""
        return {str(scale): evidence.dispersion for scale, evidence in sorted(self._evidence.items())}
