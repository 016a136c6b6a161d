"""The profiler on one load: it chooses settings as a campaign does, and is judged on settings that it has not seen."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import product
from statistics import fmean

from agents.profiling.measure import measure
from app.campaigns.limits import ACCURACY_SHARE, BATCHES, MOST_MEASUREMENTS, SM_PERCENTS
from scripts.gpukit.stand import Stand
from solvers.curves.choose import next_setting
from solvers.curves.curve import LatencyCurve, fit
from solvers.curves.measurement import Measurement, Setting

LOAD = "arithmetic"
QUANTILE = 0.9
CHECKED, CHECKED_SHORT, MOST_SHORT = 8, 2, 4
SEED = 1


def run_profiler(stand: Stand) -> dict[str, object]:
    """Fits a curve to at most 16 measurements, and measures some of the other settings."""
    highest = max(stand.gpu.clocks_mhz, default=1)
    settings = [Setting(batch, float(percent), highest) for batch, percent in product(BATCHES, SM_PERCENTS)]
    most = MOST_SHORT if stand.options.is_short else MOST_MEASUREMENTS
    measured: list[Measurement] = []
    half = (time.monotonic() + stand.time.ends_at) / 2  # the other half is for what the curve has not seen
    while time.monotonic() < half and (setting := next_setting(measured, settings, ACCURACY_SHARE, most)):
        measured.append(_measure(stand, setting, len(measured) + 1))
    curve = fit(measured, highest)
    seen = {(found.batch, found.sm_percent) for found in measured}
    unseen = [setting for setting in settings if (setting.batch, setting.sm_percent) not in seen]
    chosen = random.Random(SEED).sample(unseen, CHECKED_SHORT if stand.options.is_short else CHECKED)
    rows = [
        _row(curve, _measure(stand, setting, most + place)) for place, setting in enumerate(stand.time.take(chosen), 1)
    ]
    return {"load": LOAD, "measurements": len(measured), "left_out_error": curve.error} | _judge(rows)


def _measure(stand: Stand, setting: Setting, sequence: int) -> Measurement:
    task = stand.task(LOAD, stand.args(LOAD), setting.sm_percent, setting.batch, sequence=sequence)
    found = measure(task, stand.seat, lambda: "")
    return Measurement(
        setting.batch, setting.sm_percent, setting.clock_mhz, found.latency_ms, found.spread_ms, found.samples
    )


def _row(curve: LatencyCurve, found: Measurement) -> dict[str, float]:
    batch, sm_percent, clock_mhz = found.batch, found.sm_percent, found.clock_mhz
    return {
        "batch": batch,
        "sm_percent": sm_percent,
        "latency_ms": found.latency_ms,
        "foretold_ms": curve.mean_ms(batch, sm_percent, clock_mhz),
        "q90_ms": curve.quantile_ms(batch, sm_percent, clock_mhz, QUANTILE),
    }


def _judge(rows: Sequence[dict[str, float]]) -> dict[str, object]:
    """Returns the mean error on what was not seen, and how many stayed below the quantile."""
    return {
        "error": fmean(abs(row["foretold_ms"] / row["latency_ms"] - 1) for row in rows),
        "covered": sum(row["latency_ms"] <= row["q90_ms"] for row in rows),
        "rows": rows,
    }
