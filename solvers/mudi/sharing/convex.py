"""Mudi's own method for SM%: one convex problem in CVXPY for all residents of a cluster.

It is compiled once for a number of residents and of pieces of their curves (DPP). Curves, times allowed and pressures
are its parameters, so that each later cycle solves it again with other numbers. A curve that is not convex is replaced
by the convex one below it: rounded up to where the curve itself is fast enough, the answer is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from solvers.mudi.sharing.closed import SLACK, value_at
from solvers.mudi.sharing.find import Ends, neighbour_pressures
from solvers.mudi.sharing.kernels import Floats
from solvers.mudi.sharing.problem import Curve, SharedGpu, SharingResident

NEAR = 1e-4  # SM%: the assumed error of the convex solver's answer
SIZES_KEPT = 8
Piece: TypeAlias = tuple[float, float]  # slope and intercept


class ConvexFailed(Exception):
    """The convex solver has no answer to a problem that has one; the message says what it reports."""


def _cvxpy() -> Any:
    """Returns the library, whose functions carry no types; it takes half a second to import."""
    import cvxpy

    return cvxpy


class _CompiledShares:
    """The problem for so many residents, each with so many pieces at most."""

    def __init__(self, residents: int, pieces: int) -> None:
        cp = _cvxpy()
        self.lock = Lock()
        self.percent = cp.Variable(residents)
        self.slopes, self.intercepts = cp.Parameter((pieces, residents)), cp.Parameter((pieces, residents))
        self.least, self.most = cp.Parameter(residents), cp.Parameter(residents)
        # (W / b) P(b, d, psi) <= SLO, a row for each piece, divided by the time allowed
        rows = [cp.multiply(self.slopes[i], self.percent) + self.intercepts[i] <= 1 for i in range(pieces)]
        within = [self.percent >= self.least, self.percent <= self.most]
        self.problem = cp.Problem(cp.Minimize(cp.sum(self.percent)), [*rows, *within])

    def solve(self, slopes: Floats, intercepts: Floats, least: Floats, most: Floats) -> Floats:
        cp = _cvxpy()
        with self.lock:
            self.slopes.value, self.intercepts.value = slopes, intercepts
            self.least.value, self.most.value = least, most
            try:
                self.problem.solve(solver=cp.CLARABEL)
            except cp.SolverError as error:
                raise ConvexFailed(f"CVXPY has no answer: {error}") from error
            if self.problem.status != cp.OPTIMAL:
                raise ConvexFailed(f"CVXPY reports {self.problem.status}")
            found: Floats = self.percent.value
            return found


_compiled = lru_cache(maxsize=SIZES_KEPT)(_CompiledShares)


class ConvexSharing:
    """The smallest SM% of each resident, given the pressure on it."""

    def __init__(self, residents: Sequence[SharingResident]) -> None:
        self.residents = tuple(residents)
        pieces = [_list_pieces(resident.latency_ms) for resident in self.residents]
        width, height = _round_size(len(pieces)), max(map(len, pieces), default=1)
        # Residents and pieces that are missing ask for nothing.
        lines = np.zeros((width, height, 2))
        for number, own in enumerate(pieces):
            lines[number, : len(own)] = own
        self._slopes, self._intercepts = lines[:, :, 0].T, lines[:, :, 1].T
        self._least, self._most = np.ones(width), np.ones(width)
        self._least[: len(pieces)] = [resident.least_percent for resident in self.residents]
        self._most[: len(pieces)] = [resident.most_percent for resident in self.residents]
        self._compiled = _compiled(width, height)

    def least_percents(self, pressures: Sequence[float]) -> list[float] | None:
        """Returns the convex solver's smallest SM%, not whole; None if a resident is too slow at its most SM%."""
        return self._solve(self._most_ms(pressures))

    def least_whole_percents(self, pressures: Sequence[float]) -> Ends | None:
        """Returns the smallest whole SM%; None if a resident is too slow at its most SM%."""
        most_ms = self._most_ms(pressures)
        found = self._solve(most_ms)
        if found is None:
            return None
        whole = []
        for resident, most, percent in zip(self.residents, most_ms, found, strict=True):
            up = max(resident.least_percent, ceil(percent - NEAR))
            while up < resident.most_percent and value_at(resident.latency_ms, up) > most:
                up += 1
            whole.append(up)
        return tuple(whole)

    def _most_ms(self, pressures: Sequence[float]) -> list[float]:
        """Returns the time that a batch may take alone."""
        pairs = zip(self.residents, pressures, strict=True)
        return [r.most_exec_ms / (1 + r.sensitivity * pressure) * (1 + SLACK) for r, pressure in pairs]

    def _solve(self, most_ms: Sequence[float]) -> list[float] | None:
        if any(r.latency_ms[-1][1] > most for r, most in zip(self.residents, most_ms, strict=True)):
            return None
        allowed = np.ones(len(self._least))
        allowed[: len(most_ms)] = most_ms
        found = self._compiled.solve(self._slopes / allowed, self._intercepts / allowed, self._least, self._most)
        return [float(percent) for percent in found[: len(most_ms)]]


def raise_shares(gpus: Sequence[SharedGpu]) -> list[Ends] | None:
    """Solves the coupled problem on whole SM%, of all GPUs at once: raises from the least until all hold.

    Returns None if a resident is too slow at its most SM%. The caller checks whether the sums fit.
    """
    convex = ConvexSharing([resident for gpu in gpus for resident in gpu.residents])
    percents: Ends = tuple(resident.least_percent for resident in convex.residents)
    before: list[float] = []
    while (pressures := _list_pressures(gpus, percents)) != before:
        needed = convex.least_whole_percents(pressures)
        if needed is None:
            return None
        percents, before = tuple(map(max, percents, needed)), pressures
    return _split(gpus, percents)


def _list_pressures(gpus: Sequence[SharedGpu], percents: Ends) -> list[float]:
    """Returns the pressure of all others on each resident."""
    found: list[float] = []
    for gpu, own in zip(gpus, _split(gpus, percents), strict=True):
        if len(own) == 1:
            found.append(gpu.other_pressure)
            continue
        pressing = [value_at(resident.pressure, percent) for resident, percent in zip(gpu.residents, own, strict=True)]
        found += neighbour_pressures(gpu, pressing)
    return found


def _split(gpus: Sequence[SharedGpu], percents: Ends) -> list[Ends]:
    """Returns the SM% by GPU."""
    ends = [0, *accumulate(len(gpu.residents) for gpu in gpus)]
    return [percents[begin:end] for begin, end in pairwise(ends)]


def _round_size(residents: int) -> int:
    """Returns a size for which a problem is compiled: the same for about as many residents."""
    step = 1 << max(0, residents.bit_length() - 3)
    return max(1, -(-residents // step) * step)


@lru_cache(maxsize=65536)
def _list_pieces(curve: Curve) -> tuple[Piece, ...]:
    """Returns the pieces of the convex curve below this one."""
    if len(curve) == 1:
        return ((0.0, curve[0][1]),)
    kept: list[tuple[int, float]] = []
    for point in curve:
        while len(kept) > 1 and _slope(kept[-2], kept[-1]) >= _slope(kept[-1], point):
            kept.pop()
        kept.append(point)
    slopes = [_slope(low, high) for low, high in pairwise(kept)]
    return tuple((slope, ms - slope * percent) for slope, (percent, ms) in zip(slopes, kept, strict=False))


def _slope(start: tuple[int, float], end: tuple[int, float]) -> float:
    return (end[1] - start[1]) / (end[0] - start[0])
