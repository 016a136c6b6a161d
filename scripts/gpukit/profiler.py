"""The profiler on one load: it chooses settings as a campaign does, and is judged on settings that it has not seen."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean

from agents.contract.campaigns import CopySetting, MeasuredSetting
from agents.profiling.measure import measure
from app.campaigns.choosing import choose, measurement_of
from app.campaigns.limits import ACCURACY_SHARE, BATCHES, MOST_MEASUREMENTS, SM_PERCENTS, grid
from scripts.gpukit.stand import Stand
from solvers.curves import LatencyCurve, fit

LOAD = "arithmetic"
QUANTILE = 0.9
CHECKED, CHECKED_SHORT, MOST_SHORT = 8, 2, 4
SEED = 1


def run_profiler(stand: Stand) -> dict[str, object]:
    """Fits a curve to at most 16 measurements, and measures some of the other settings."""
    highest = max(stand.gpu.clocks_mhz, default=1)
    settings = grid(BATCHES, SM_PERCENTS, [highest])
    most = MOST_SHORT if stand.options.is_short else MOST_MEASUREMENTS
    measured: list[MeasuredSetting] = []
    while setting := choose(settings, measured, (), ACCURACY_SHARE, most):
        measured.append(_measure(stand, setting, len(measured) + 1))
    curve = fit([measurement_of(found) for found in measured], highest)
    seen = {found.setting for found in measured}
    unseen = [setting for setting in settings if setting not in seen]
    chosen = random.Random(SEED).sample(unseen, CHECKED_SHORT if stand.options.is_short else CHECKED)
    rows = [_row(curve, _measure(stand, setting, most + place)) for place, setting in enumerate(chosen, 1)]
    return {"load": LOAD, "measurements": len(measured), "left_out_error": curve.error} | _judged(rows)


def _measure(stand: Stand, setting: CopySetting, sequence: int) -> MeasuredSetting:
    task = stand.task(LOAD, stand.args(LOAD), setting.sm_percent, setting.batch, sequence=sequence)
    return measure(task, stand.seat, lambda: "")


def _row(curve: LatencyCurve, found: MeasuredSetting) -> dict[str, float]:
    batch, sm_percent, clock_mhz = found.setting.batch, found.setting.sm_percent, found.setting.clock_mhz
    return {
        "batch": batch,
        "sm_percent": sm_percent,
        "latency_ms": found.latency_ms,
        "foretold_ms": curve.mean_ms(batch, sm_percent, clock_mhz),
        "q90_ms": curve.quantile_ms(batch, sm_percent, clock_mhz, QUANTILE),
    }


def _judged(rows: Sequence[dict[str, float]]) -> dict[str, object]:
    """Returns the mean error on what was not seen, and how many stayed below the quantile."""
    return {
        "error": fmean(abs(row["foretold_ms"] / row["latency_ms"] - 1) for row in rows),
        "covered": sum(row["latency_ms"] <= row["q90_ms"] for row in rows),
        "rows": rows,
    }
