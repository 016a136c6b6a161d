"""Finds the physical load that explains the figures known of a model: its times by batch and SM%, and its watts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulation.truth.family import ModelTraits
from simulation.truth.load import GpuPhysics, PhysicalLoad, times

LoadKey: TypeAlias = tuple[str, ...]  # names of a model; the last is the kind of GPU
Points: TypeAlias = Mapping[int, Sequence[tuple[float, float]]]  # batch -> (SM%, ms)
Floats: TypeAlias = NDArray[np.float64]

FULL = 1.0


@dataclass(frozen=True, slots=True)
class KnownFigures:
    """The declared or published figures of a model on a kind of GPU: only its scale and shape are used."""

    points: Points
    busy_w: float = 0.0  # above idle, busy on all SMs

    def __post_init__(self) -> None:
        if not self.points or not all(self.points.values()):
            raise ValueError("no times are known")


def fit_load(known: KnownFigures, gpu: GpuPhysics, traits: ModelTraits) -> PhysicalLoad:
    """Returns the load whose times are nearest to the known ones, in their logarithms, of those with these traits."""
    places = [(batch, percent / 100, ms) for batch, curve in known.points.items() for percent, ms in curve]
    from scipy.optimize import least_squares  # a fifth of a second, and most fits are kept

    wanted = np.log([ms for _, _, ms in places])
    largest = max(known.points)
    shortest = min(ms for _, _, ms in places)

    def off(guess: Floats) -> Floats:
        load = _load(guess, traits, largest, shortest)
        return np.array([np.log(times(load, gpu, batch, share).alone) for batch, share, _ in places]) - wanted

    a_request, a_batch = _slope_and_rest(known.points)
    start = np.log([a_request, a_batch, 0.3 * shortest, 0.3, 0.4])
    low = np.log([a_request / 10, a_batch / 100, shortest / 1000, 0.01, 0.02])
    high = np.log([a_request * 3, a_batch * 5, shortest, 2.0, 1.5])
    found = least_squares(off, np.clip(start, low + 1e-6, high - 1e-6), bounds=(low, high), max_nfev=60)
    load = _load(found.x, traits, largest, shortest)
    compute_w, move_w = _powers(load, gpu, known.busy_w, largest, traits)
    return replace(load, compute_w=compute_w, move_w=move_w)


def _load(guess: Floats, traits: ModelTraits, largest: int, shortest: float) -> PhysicalLoad:
    """Returns the load of a guess: logarithms of what a request and a batch compute, of launching and filling."""
    computing, computing_fixed, launch, fill, grows = (float(value) for value in np.exp(guess))
    whole = computing_fixed + computing * largest  # moving of the largest batch is in its drawn ratio to computing
    fixed = traits.fixed_share / (traits.fixed_share + (1 - traits.fixed_share) * largest)
    moved = whole * traits.move_ratio
    return PhysicalLoad(
        compute_ms=computing,
        compute_fixed_ms=computing_fixed,
        move_ms=moved * (1 - fixed) / largest,
        move_fixed_ms=moved * fixed,
        launch_ms=launch,
        host_ms=shortest * traits.host_share,
        fill_share=fill,
        fill_exponent=grows,
        l2_need=traits.l2_need,
        l2_reuse=traits.l2_reuse,
        weight=traits.weight,
    )


def _slope_and_rest(points: Points) -> tuple[float, float]:
    """Returns what a request and a batch take of the whole GPU, by the least work of each batch at any share."""
    work = {batch: min(percent / 100 * ms for percent, ms in curve) for batch, curve in points.items()}
    least, most = min(work), max(work)
    if least == most:
        return 0.7 * work[least] / least, 0.3 * work[least]
    slope = max((work[most] - work[least]) / (most - least), 0.05 * work[most] / most)
    return slope, max(work[least] - slope * least, 0.05 * work[least])


def _powers(
    load: PhysicalLoad, gpu: GpuPhysics, busy_w: float, largest: int, traits: ModelTraits
) -> tuple[float, float]:
    """Returns the watts of computing and moving, so that a full batch on the whole GPU draws what is known."""
    part = times(load, gpu, largest, FULL)
    whole = busy_w or 0.75 * (gpu.max_w - gpu.idle_w)
    computes, moves = part.sms * part.compute / part.alone, part.moved / part.alone
    share = traits.move_power_share
    return whole * (1 - share) / max(computes, 0.1), whole * share / max(moves, 0.1)
