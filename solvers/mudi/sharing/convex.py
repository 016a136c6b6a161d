"""Mudi's own method for SM%: a convex problem in CVXPY, with the neighbours' pressure as its parameter.

It is compiled once for a set of curves (DPP) and solved for each pressure. The curves must be convex, as Mudi's
two-piece curves are. Residents of several GPUs may share one problem, as its objective and rows are separable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np

from solvers.mudi.sharing.closed import SLACK
from solvers.mudi.sharing.kernels import Floats
from solvers.mudi.sharing.problem import Curve, SharedGpu, SharingResident, WrongSharing

NEAR = 1e-4  # SM%: the assumed error of the convex solver's answer


def _cvxpy() -> Any:
    """Returns the library, whose functions carry no types; it takes a third of a second to import."""
    import cvxpy

    return cvxpy


class ConvexSharing:
    """The smallest SM% of each resident, given the pressure on it."""

    def __init__(self, residents: Sequence[SharingResident]) -> None:
        self.residents = tuple(residents)
        owner, slopes, intercepts = [], [], []
        for i, resident in enumerate(self.residents):
            for slope, intercept in _pieces(resident):
                owner.append(i)
                slopes.append(slope)
                intercepts.append(intercept)
        cp = _cvxpy()
        self.percent = cp.Variable(len(self.residents))
        self.pressure = cp.Parameter(len(self.residents), nonneg=True)
        sensitivity = np.array([resident.sensitivity for resident in self.residents])
        most_ms = np.array([resident.most_exec_ms for resident in self.residents])
        alone_ms = cp.multiply(np.array(slopes), self.percent[owner]) + np.array(intercepts)
        slowed = 1 + cp.multiply(sensitivity, self.pressure)
        self.problem = cp.Problem(
            cp.Minimize(cp.sum(self.percent)),
            [
                # (W / b) P(b, d, psi) <= SLO, a row for each piece, divided by the time allowed
                cp.multiply(slowed[owner], cp.multiply(1 / most_ms[owner], alone_ms)) <= 1,
                self.percent >= np.array([resident.least_percent for resident in self.residents]),
                self.percent <= np.array([resident.most_percent for resident in self.residents]),
            ],
        )

    def least_percents(self, pressures: Floats) -> Floats | None:
        """Returns the convex solver's smallest SM%, not whole; None if a resident is too slow at its most SM%."""
        for resident, pressure in zip(self.residents, pressures, strict=True):
            slowed = 1 + resident.sensitivity * pressure
            if resident.latency_ms[-1][1] * slowed > resident.most_exec_ms * (1 + SLACK):
                return None
        self.pressure.value = pressures
        # HiGHS has one scheduler in a process. Once it has several threads, a solve that asks for one fails.
        self.problem.solve(solver=_cvxpy().HIGHS, threads=1)
        found: Floats | None = self.percent.value
        if found is None:
            raise RuntimeError(f"the convex solver reports {self.problem.status} for a problem that has an answer")
        return found

    def least_whole_percents(self, pressures: Floats) -> tuple[int, ...] | None:
        """Returns the smallest whole SM%; None if a resident is too slow at its most SM%."""
        found = self.least_percents(pressures)
        if found is None:
            return None
        whole = []
        for resident, pressure, percent in zip(self.residents, pressures, found, strict=True):
            most_ms = resident.most_exec_ms / (1 + resident.sensitivity * pressure) * (1 + SLACK)
            up = max(resident.least_percent, ceil(percent - NEAR))
            while up < resident.most_percent and _read_curve(resident.latency_ms, up) > most_ms:
                up += 1
            whole.append(up)
        return tuple(whole)


def raise_shares(gpu: SharedGpu) -> Mapping[str, int] | None:
    """Solves the coupled problem on whole SM%: raises from the least to what the convex problem needs, until it holds.

    Returns None if a resident is too slow at its most SM%. The caller checks whether the sum fits.
    """
    convex = ConvexSharing(gpu.residents)
    percents = tuple(resident.least_percent for resident in gpu.residents)
    while True:
        pressing = [_read_curve(r.pressure, percent) for r, percent in zip(gpu.residents, percents, strict=True)]
        neighbours = [gpu.other_pressure + sum(pressing[:i]) + sum(pressing[i + 1 :]) for i in range(len(pressing))]
        needed = convex.least_whole_percents(np.array(neighbours))
        if needed is None:
            return None
        higher = tuple(map(max, percents, needed))
        if higher == percents:
            return dict(zip((resident.name for resident in gpu.residents), percents, strict=True))
        percents = higher


def _pieces(resident: SharingResident) -> list[tuple[float, float]]:
    """Returns slope and intercept of every piece; refuses a curve that is not the maximum of its pieces."""
    points = resident.latency_ms
    if len(points) == 1:
        return [(0.0, points[0][1])]
    slopes = [(fast - slow) / (high - low) for (low, slow), (high, fast) in pairwise(points)]
    for (percent, _), (before, after) in zip(points[1:], pairwise(slopes), strict=False):
        if after < before - SLACK * max(1.0, abs(before)):
            raise WrongSharing(f"resident {resident.name}: latencyMs is not convex at {percent} %")
    return [(slope, ms - slope * percent) for slope, (percent, ms) in zip(slopes, points, strict=False)]


def _read_curve(curve: Curve, percent: float) -> float:
    return float(np.interp(percent, [at for at, _ in curve], [value for _, value in curve]))
