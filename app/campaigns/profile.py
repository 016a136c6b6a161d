"""Turns the measurements of a model on a GPU type into its Profile."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import accumulate
from statistics import fmean

import numpy as np

from agents.contract.campaigns import CopySetting, MeasuredSetting
from app.campaigns.choosing import measurement_of
from app.manifests.drafts import ERROR_GOAL, Q90_DEVIATIONS, find_q90_factor
from app.manifests.model import API_VERSION, Free, WrittenSpec
from solvers.curves.curve import LatencyCurve, clock_exponent, fit, table

LEAST_MEMORY_GIB = 0.1  # of a copy whose device reports none: an empty CUDA context takes more
DIGITS = 5
FEWEST_OF_CURVE = 2
MOST_EXPONENT = 10.0  # that a Profile may have
# What a campaign does not measure is kept from the Profile that is declared already.
KEPT = ("pressure", "sensitivity", "cpuCores", "hostMemoryGib", "clockExponent", "powerExponent")


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


@dataclass(frozen=True, slots=True)
class ProfileSubject:
    """The subject of a Profile, and the Profile that is declared of it already."""

    model: str
    variant: str
    gpu_type: str
    highest_clock_mhz: int
    name: str = ""  # of the declared Profile
    declared: WrittenSpec | None = None  # its spec
    error_goal: float = ERROR_GOAL


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """A Profile as a manifest, and how far its curve misses a measurement that it is not shown."""

    manifest: Free
    left_out_error: float | None  # None: a single measurement, which no other predicts


def profile_of(
    subject: ProfileSubject, measured: Sequence[MeasuredSetting], settings: Sequence[CopySetting] = ()
) -> MeasuredProfile:
    """Returns the Profile of one or more measurements, chosen among `settings`.

    Its table has the curve at all batches and shares of the settings between those that were measured: readers
    interpolate on straight lines, which lie above the curve. The spread of a draft is that of its left-out errors,
    where these are larger than the curve knows.
    """
    curve = None
    if len(measured) >= FEWEST_OF_CURVE:
        curve = fit([measurement_of(found) for found in measured], subject.highest_clock_mhz)
    declared = subject.declared or {}
    spec: dict[str, object] = {
        "model": subject.model,
        "variant": subject.variant,
        "gpuType": subject.gpu_type,
        "latencyMs": _latencies(curve, subject, measured, settings) if curve else _only_latency(measured[0]),
        "memoryGib": _memories(measured, settings if curve else ()),
        **{field: declared[field] for field in KEPT if field in declared},
    }
    if power := power_of(measured):
        spec["powerW"] = {f"{share:g}": _round(watts) for share, watts in power.watts.items()}
        if power.exponent is not None:
            spec["powerExponent"] = _round(min(power.exponent, MOST_EXPONENT))
    elif "powerW" in declared:
        spec["powerW"] = declared["powerW"]
    if starts := [found.start_seconds for found in measured if found.start_seconds > 0]:
        spec["startSeconds"] = _round(max(starts))
    exponent = _clock_exponent(curve, measured) if curve else None
    if exponent is not None:
        spec["clockExponent"] = exponent
    if curve:
        spec["leftOutError"] = _round(curve.error)
    if subject.error_goal != ERROR_GOAL:
        spec["errorGoal"] = subject.error_goal
    name = subject.name or profile_name(subject.model, subject.variant, subject.gpu_type)
    manifest = {"apiVersion": API_VERSION, "kind": "Profile", "metadata": {"name": name}, "spec": spec}
    return MeasuredProfile(manifest, curve.error if curve else None)


def profile_name(model: str, variant: str, gpu_type: str) -> str:
    """Returns a DNS label for the Profile of a variant on a GPU type."""
    label = re.sub(r"[^a-z0-9]+", "-", f"{model}-{variant}-{gpu_type}".lower()).strip("-")
    return label[:63].rstrip("-")


def _latencies(
    curve: LatencyCurve,
    subject: ProfileSubject,
    measured: Sequence[MeasuredSetting],
    settings: Sequence[CopySetting],
) -> dict[str, dict[str, object]]:
    known = {found.setting.sm_percent for found in measured}
    shares = sorted(known | {other.sm_percent for other in settings if min(known) < other.sm_percent < max(known)})
    batches = _batches(measured, settings)
    rows = table(curve, batches, shares, subject.highest_clock_mhz)
    least = find_q90_factor(curve.error) if curve.error > subject.error_goal else 1.0
    return {
        str(batch): {
            f"{share:g}": _value(point.mean_ms, max(point.q90_ms, least * point.mean_ms), measured)
            for share, point in row.items()
        }
        for batch, row in rows.items()
    }


def _batches(measured: Sequence[MeasuredSetting], settings: Sequence[CopySetting]) -> list[int]:
    """Returns the batches that were measured, and those of the settings between them."""
    known = {found.setting.batch for found in measured}
    return sorted(known | {setting.batch for setting in settings if min(known) < setting.batch < max(known)})


def _only_latency(found: MeasuredSetting) -> dict[str, dict[str, object]]:
    """Returns a single point, with the spread of its batches."""
    upper_ms = found.latency_ms + Q90_DEVIATIONS * found.spread_ms
    value = _value(found.latency_ms, upper_ms, [found])
    return {str(found.setting.batch): {f"{found.setting.sm_percent:g}": value}}


def _value(mean: float, q90: float, measured: Sequence[MeasuredSetting]) -> dict[str, object]:
    """Returns an uncertain value, which all measurements of the campaign have made together."""
    at = max(found.at for found in measured).astimezone(UTC)
    return {
        "mean": _round(mean),
        "q90": _round(q90),
        "n": len(measured),
        "at": at.replace(tzinfo=None).isoformat(timespec="seconds") + "Z",
        "source": "measured",
    }


def _memories(measured: Sequence[MeasuredSetting], settings: Sequence[CopySetting]) -> dict[str, float]:
    """Returns the most memory that a copy of each batch held, never less than that of a smaller batch.

    A batch that was not measured needs as much as the next larger one that was.
    """
    most: dict[int, float] = {}
    for found in measured:
        most[found.setting.batch] = max(most.get(found.setting.batch, LEAST_MEMORY_GIB), found.memory_gib)
    known = sorted(most)
    rising = dict(zip(known, accumulate((most[batch] for batch in known), max), strict=True))
    batches = _batches(measured, settings)
    return {str(batch): _round(rising[known[bisect_left(known, batch)]]) for batch in batches}


def _clock_exponent(curve: LatencyCurve, measured: Sequence[MeasuredSetting]) -> float | None:
    """Returns the exponent with which time grows as the clock falls; None where one clock only was measured."""
    lowest = min(found.setting.clock_mhz for found in measured)
    if lowest >= curve.highest_clock_mhz:
        return None
    batches = sorted({found.setting.batch for found in measured})
    shares = sorted({found.setting.sm_percent for found in measured})
    return _round(min(clock_exponent(curve, batches, shares, lowest), MOST_EXPONENT))


def _round(value: float) -> float:
    """Returns the value with five significant digits."""
    return float(f"{value:.{DIGITS}g}")
