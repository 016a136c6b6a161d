"""The headroom of a planned rate: what it is made of, which rule keeps it, and until when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from solvers.forecast.peaks import PlannedRate, expect, recall_seconds, split_need
from solvers.forecast.samples import Sample, usable

Keeper: TypeAlias = Literal["silent", "rises", "falls", "declared", "rise", "miss", "settling", "peak", "load"]
Part: TypeAlias = Literal["peak", "headroom", "declared", "margin", "trend", "kept"]

LOOK_SECONDS = 20.0  # between the moments at which a fall is tried
STEADY_SECONDS = 1500.0  # by then a steady load has let every memory of another one end


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a planned rate has above the load, why, and when it falls if the load stays as it is."""

    arriving: float  # requests a second, of the last minute
    peak: float  # the highest minute, as it counts
    recall_seconds: float  # for which that is remembered
    parts: tuple[tuple[Part, float], ...]  # requests a second; their sum is what is planned above what arrives
    keeper: Keeper  # the rule by which it stays
    falls_at: float | None  # the earliest moment; None: while the load stays as it is, it does not fall


def account(samples: Sequence[Sample], planned: PlannedRate) -> Headroom | None:
    """Splits the headroom of a planned rate, by the rules that decide about it; None without a sample."""
    known = usable(samples)
    if not known:
        return None
    recall = planned.settings.recall_seconds
    need = split_need(known, recall, planned.ahead_seconds)
    if planned.rate > need.peak * (1 + need.headroom) * (1 + planned.settings.fall_band):
        recall = recall_seconds(known, planned.settings)
        need = split_need(known, recall, planned.ahead_seconds)
    unplanned = replace(planned, rate=0.0)
    bare = expect(known, replace(unplanned, margin=0.0)).rate
    in_rise = planned.rate * planned.risen_margin / (1 + planned.risen_margin)
    whole = need.peak * (1 + need.headroom)
    wanted: tuple[tuple[Part, float], ...] = (
        ("peak", need.peak - need.arriving), ("headroom", need.peak * need.headroom), ("declared", bare - whole),
        ("margin", max(expect(known, unplanned).rate - bare, in_rise)),
        ("trend", need.trend), ("kept", math.inf),
    )  # fmt: skip
    left, parts = max(0.0, planned.rate - need.arriving), list[tuple[Part, float]]()
    for part, rate in wanted:
        given = min(max(0.0, rate), left)
        left -= given
        parts.append((part, given))
    falls = _find_fall(known, planned, need.arriving)
    return Headroom(need.arriving, need.peak, recall, tuple(parts), _find_keeper(known, planned, falls), falls)


def _find_keeper(samples: Sequence[Sample], planned: PlannedRate, falls: float | None) -> Keeper:
    now, cooldown = expect(samples, planned), planned.settings.cooldown_seconds
    if planned.silent_seconds > planned.settings.silent_seconds:
        return "silent"
    if now.rate != planned.rate:
        return "rises" if now.rate > planned.rate else "falls"
    if falls is None:
        return "load"
    if planned.rate <= planned.declared and planned.observed_seconds < planned.settings.observe_seconds:
        return "declared"
    if planned.rate > now.high:
        return (
            "rise" if planned.risen_seconds < cooldown else "miss" if planned.missed_seconds < cooldown else "settling"
        )
    return "peak" if falls else "load"


def _find_fall(samples: Sequence[Sample], planned: PlannedRate, arriving: float) -> float | None:
    """Returns the first moment at which the plan falls if requests go on arriving like this; None if it does not."""
    if planned.silent_seconds > planned.settings.silent_seconds:
        return None
    later, end = list(samples), samples[-1].at
    horizon = STEADY_SECONDS + max(0.0, planned.settings.observe_seconds - planned.observed_seconds)
    while (seconds := later[-1].at - end) < horizon:
        if expect(later, planned.wait(seconds)).rate < planned.rate:
            return later[-1].at
        later.append(Sample(later[-1].at + LOOK_SECONDS, LOOK_SECONDS, arriving * LOOK_SECONDS))
    return None
