"""Measures one model alone on a kind of GPU, and writes what was found as the figures of a Profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from simulation.truth import LoadKey, Physics, Running
from solvers.curves import LatencyCurve, Measurement, Setting, fit, next_setting

SPREAD_SHARE = 0.01  # of single batches
SAMPLES = 50


@dataclass(frozen=True, slots=True)
class MeasuredAlone:
    """The settings that were measured, with the watts above idle that each drew."""

    measurements: tuple[Measurement, ...]
    watts: tuple[float, ...]


def settings_of(latency_ms: Mapping[int, Sequence[tuple[int, float]]], clocks_mhz: Sequence[float]) -> list[Setting]:
    """Returns all settings that a profile may state: its batches and shares, at each clock."""
    shares = sorted({percent for curve in latency_ms.values() for percent, _ in curve})
    return [
        Setting(batch, share, int(clock)) for batch in sorted(latency_ms) for share in shares for clock in clocks_mhz
    ]


def measure_alone(
    physics: Physics, key: LoadKey, settings: Sequence[Setting], most: int | None, random: np.random.Generator
) -> MeasuredAlone:
    """Measures up to `most` settings, each chosen by what is known so far; all of them for None."""
    found: list[Measurement] = []
    watts: list[float] = []
    waiting = iter(settings)
    while True:
        setting = next(waiting, None) if most is None else next_setting(found, settings, most=most)
        if setting is None:
            return MeasuredAlone(tuple(found), tuple(watts))
        batch, share, clock = setting.batch, setting.sm_percent, setting.clock_mhz
        group = physics.together((Running(key, batch, share),), clock)
        noise = SPREAD_SHARE / SAMPLES**0.5 * random.standard_normal() if most is not None else 0.0
        time_ms = group.times_ms[0] * (1 + noise)
        found.append(Measurement(batch, share, clock, time_ms, SPREAD_SHARE * time_ms, SAMPLES))
        watts.append(group.watts[0])


def figures_alone(
    known: MeasuredAlone,
    latency_ms: Mapping[int, Sequence[tuple[int, float]]],
    clocks_mhz: Sequence[float],
    quantile: float | None,
) -> dict[str, Any]:
    """Returns latencyMs, clockExponent, powerW and powerExponent; with a quantile, what a curve is that sure of."""
    clocks = [int(clock) for clock in clocks_mhz]
    exact = {one.setting: one.latency_ms for one in known.measurements}
    curve = fit(known.measurements, clocks[-1]) if quantile is not None else None
    times: dict[str, dict[str, float]] = {}
    for batch, points in sorted(latency_ms.items()):
        falling = float("inf")
        row = times.setdefault(str(batch), {})
        for percent, _ in points:
            setting = Setting(batch, percent, clocks[-1])
            falling = min(falling, _quantile(curve, setting, quantile) if curve else exact[setting])
            row[str(percent)] = round(falling, 4)
    settings = settings_of(latency_ms, clocks)
    exponent = _clock_exponent(
        settings, clocks, {at: curve.mean_ms(*_plain(at)) for at in settings} if curve else exact
    )
    return {"latencyMs": times, "clockExponent": exponent, **_power(known, clocks)}


def _plain(setting: Setting) -> tuple[int, float, int]:
    return setting.batch, setting.sm_percent, setting.clock_mhz


def _quantile(curve: LatencyCurve, setting: Setting, quantile: float | None) -> float:
    return curve.mean_ms(*_plain(setting)) if quantile is None else curve.quantile_ms(*_plain(setting), quantile)


def _clock_exponent(settings: Sequence[Setting], clocks: Sequence[int], times: Mapping[Setting, float]) -> float:
    """Returns an exponent that covers nine of ten settings."""
    found = [
        log(times[at] / times[Setting(at.batch, at.sm_percent, clocks[-1])]) / log(clocks[-1] / at.clock_mhz)
        for at in settings
        if at.clock_mhz < clocks[-1]
    ]
    return round(float(np.clip(np.quantile(found, 0.9), 0.0, 3.0)), 3) if found else 1.0


def _power(known: MeasuredAlone, clocks: Sequence[int]) -> dict[str, Any]:
    """Returns the most watts seen at each share at the highest clock, and an exponent by what lower clocks drew."""
    most: dict[float, float] = {}
    for one, watts in zip(known.measurements, known.watts, strict=True):
        if one.clock_mhz == clocks[-1]:
            most[one.sm_percent] = max(watts, most.get(one.sm_percent, 0.0))
    rising: dict[str, float] = {}
    highest = 0.0
    for share in sorted(most):
        highest = max(highest, most[share])
        rising[f"{share:g}"] = round(highest, 2)
    at, drawn = [float(share) for share in rising], list(rising.values())
    found = [
        log(watts / np.interp(one.sm_percent, at, drawn)) / log(one.clock_mhz / clocks[-1])
        for one, watts in zip(known.measurements, known.watts, strict=True)
        if one.clock_mhz < clocks[-1] and at and watts > 0
    ]
    exponent = round(float(np.clip(np.median(found), 0.0, 3.0)), 3) if found else 1.0
    return {"powerW": rising or {"100": 0.0}, "powerExponent": exponent}
