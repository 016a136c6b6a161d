"""Finds the power that a busy copy draws above the idle GPU, by its share of the SMs and by the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from agents.contract.campaigns import CopySetting, MeasuredSetting


@dataclass(frozen=True, slots=True)
class MeasuredPower:
    """Mean watts above idle by SM% at the highest clock; power falls with clock ** exponent (None: one clock only)."""

    watts: dict[float, float]
    exponent: float | None


def power_of(measured: Sequence[MeasuredSetting]) -> MeasuredPower | None:
    """Returns the power of copies at the highest clock, scaled from lower ones; None if the device reports no power."""
    known = [found for found in measured if found.power_w > 0 and found.idle_w > 0]
    if not known:
        return None
    idle = min(found.idle_w for found in known)
    drawn = [(found.setting, max(0.0, found.power_w - idle)) for found in known]
    highest = max(setting.clock_mhz for setting, _ in drawn)
    exponent = _exponent(drawn, highest)
    by_share: dict[float, list[float]] = {}
    for setting, watts in drawn:
        if exponent is None and setting.clock_mhz < highest:
            continue
        growth = (highest / setting.clock_mhz) ** (exponent or 0.0)
        by_share.setdefault(setting.sm_percent, []).append(watts * growth)
    return MeasuredPower({share: fmean(by_share[share]) for share in sorted(by_share)}, exponent)


def _exponent(drawn: Sequence[tuple[CopySetting, float]], highest_mhz: int) -> float | None:
    """Returns the clock's exponent in a product of powers of clock, share and batch; None if it is not determined."""
    busy = [(setting, watts) for setting, watts in drawn if watts > 0]
    if all(setting.clock_mhz == highest_mhz for setting, _ in busy):
        return None
    columns = np.array(
        [[1.0, s.clock_mhz / highest_mhz, s.sm_percent / 100.0, float(s.batch)] for s, _ in busy], dtype=np.float64
    )
    terms = np.column_stack([columns[:, 0], np.log(columns[:, 1:])])
    varied = [0, 1, *(column for column in (2, 3) if np.ptp(terms[:, column]) > 0)]
    if np.linalg.matrix_rank(terms[:, varied]) < len(varied) and varied[-1] == 3:
        varied.pop()  # of the three the batch says least of the power of a copy that is always busy
    if np.linalg.matrix_rank(terms[:, varied]) < len(varied):
        return None
    values = np.log([watts for _, watts in busy])
    return max(0.0, float(np.linalg.lstsq(terms[:, varied], values, rcond=None)[0][1]))
