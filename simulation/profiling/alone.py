"""Measures one model alone on a kind of GPU, and writes what was found as the figures of a Profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from app.campaigns.limits import ACCURACY_SHARE
from simulation.truth.fitting import LoadKey
from simulation.truth.physics import Physics, RunningLoad
from solvers.curves.choose import next_setting
from solvers.curves.curve import fit, table
from solvers.curves.measurement import Measurement, Setting

SPREAD_SHARE = 0.01  # of single batches
SAMPLES = 50
AT_LOW_CLOCK = 3  # measurements that are kept for the lowest clock
MOST_EXPONENT = 3.0


@dataclass(frozen=True, slots=True)
class MeasuredAlone:
    """The settings that were measured, with the watts above idle that each drew."""

    measurements: tuple[Measurement, ...]
    watts: tuple[float, ...]

    def at(self, clock_mhz: int) -> tuple[Measurement, ...]:
        return tuple(measurement for measurement in self.measurements if measurement.clock_mhz == clock_mhz)


def measure_alone(
    physics: Physics,
    key: LoadKey,
    latency_ms: Mapping[int, Sequence[tuple[int, float]]],
    clocks_mhz: Sequence[float],
    most: int | None,
    random: np.random.Generator,
) -> MeasuredAlone:
    """Measures up to `most` settings, each chosen by what is known so far; all of them, without noise, for None."""
    shares = sorted({percent for curve in latency_ms.values() for percent, _ in curve})
    low, high = int(clocks_mhz[0]), int(clocks_mhz[-1])
    settings = [Setting(batch, share, high) for batch in sorted(latency_ms) for share in shares]
    slow = [Setting(batch, share, low) for batch in sorted(latency_ms) for share in shares] if low < high else []
    found: list[tuple[Measurement, float]] = []

    def measure(setting: Setting) -> None:
        group = physics.together((RunningLoad(key, setting.batch, setting.sm_percent),), setting.clock_mhz)
        noise = SPREAD_SHARE / SAMPLES**0.5 * random.standard_normal() if most is not None else 0.0
        time_ms = group.times_ms[0] * (1 + noise)
        measured = Measurement(
            setting.batch, setting.sm_percent, setting.clock_mhz, time_ms, SPREAD_SHARE * time_ms, SAMPLES
        )
        found.append((measured, group.watts[0]))

    if most is None:
        for setting in [*settings, *slow]:
            measure(setting)
    else:
        slow = _ends_and_middle(slow)
        while chosen := next_setting([known for known, _ in found], settings, ACCURACY_SHARE, most - len(slow)):
            measure(chosen)
        for setting in slow:
            measure(setting)
    return MeasuredAlone(tuple(measurement for measurement, _ in found), tuple(watts for _, watts in found))


def figures_alone(
    known: MeasuredAlone,
    latency_ms: Mapping[int, Sequence[tuple[int, float]]],
    clocks_mhz: Sequence[float],
    is_fitted: bool,
) -> dict[str, Any]:
    """Returns latencyMs, clockExponent, powerW and powerExponent: fitted and uncertain, or as measured."""
    high = int(clocks_mhz[-1])
    exact = {(measurement.batch, measurement.sm_percent): measurement.latency_ms for measurement in known.at(high)}
    times: dict[str, dict[str, Any]] = {}
    means = dict(exact)
    if is_fitted:
        curve = fit(known.at(high), high)
        shares = sorted({percent for points in latency_ms.values() for percent, _ in points})
        for batch, row in table(curve, sorted(latency_ms), shares, high).items():
            for share, point in row.items():
                means[batch, share] = point.mean_ms
                mean, q90 = round(point.mean_ms, 4), round(point.q90_ms, 4)
                value = {"mean": mean, "q90": q90, "n": len(exact), "source": "measured"}
                times.setdefault(str(batch), {})[f"{share:g}"] = value
    else:
        for batch, points in latency_ms.items():
            times[str(batch)] = {str(percent): round(exact[batch, percent], 4) for percent, _ in points}
    growths = [
        log(slow.latency_ms / means[slow.batch, slow.sm_percent]) / log(high / slow.clock_mhz)
        for slow in known.measurements
        if slow.clock_mhz < high
    ]
    # The largest, so that a lower clock is never slower than the profile says.
    exponent = round(float(np.clip(max(growths), 0.0, MOST_EXPONENT)), 3) if growths else 1.0
    return {"latencyMs": times, "clockExponent": exponent, **_power(known, high)}


def _ends_and_middle(settings: Sequence[Setting]) -> list[Setting]:
    """Returns the settings with the most and the least work on each SM, and one between them."""
    by_work = sorted(settings, key=lambda setting: (setting.batch / setting.sm_percent, setting.batch))
    return (
        [by_work[place] for place in sorted({0, len(by_work) // 2, len(by_work) - 1})][:AT_LOW_CLOCK] if by_work else []
    )


def _power(known: MeasuredAlone, high: int) -> dict[str, Any]:
    """Returns the most watts seen at each share at the highest clock, and an exponent by what lower clocks drew."""
    most: dict[float, float] = {}
    for measurement, watts in zip(known.measurements, known.watts, strict=True):
        if measurement.clock_mhz == high:
            most[measurement.sm_percent] = max(watts, most.get(measurement.sm_percent, 0.0))
    at = sorted(most)
    rising = [max(most[share] for share in at[: place + 1]) for place in range(len(at))]
    found = [
        log(watts / np.interp(measurement.sm_percent, at, rising)) / log(measurement.clock_mhz / high)
        for measurement, watts in zip(known.measurements, known.watts, strict=True)
        if measurement.clock_mhz < high and watts > 0
    ]
    exponent = round(float(np.clip(min(found), 0.0, MOST_EXPONENT)), 3) if found else 1.0
    return {
        "powerW": {f"{share:g}": round(watts, 2) for share, watts in zip(at, rising, strict=True)},
        "powerExponent": exponent,
    }
