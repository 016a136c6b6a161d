"""The batch server at its service completions under bursts: the exact chain of modulated Poisson arrivals.

The arrival rate changes between two values, quiet and burst, each of which brings half of the requests. With the
weight w they are 1 / (1 + w) and 1 / (1 - w) times the mean; the variation of the rate is w squared / (1 - w squared).
Phases last an SLO in the harmonic mean: shorter bursts are smoothed within an SLO, longer ones are a change of the
rate, which the forecast follows. Time is counted in execs, as in `chain`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit
from solvers.latency.bursts import CHANGES_PER_SLO

Floats: TypeAlias = NDArray[np.float64]
Complexes: TypeAlias = NDArray[np.complex128]

MOST_BURST_LOAD = 3.0  # in a burst; at a higher load all requests count as late
ITERATING = 3e5  # operations that a state costs by iteration; elimination's are counted
TAIL = 1e-6  # probability of queues near the end of the states; with more, there are too few states
LONGEST = 12  # times the requests of an SLO; where queues are longer, all requests count as late


@dataclass(frozen=True)
class Modulation:
    """Requests an exec by phase, and changes an exec from each phase to the other."""

    arrivals: Floats
    changes: Floats

    def generating(self, size: int, execs: float) -> Complexes:
        """Returns the Fourier transform of arrivals in this time, by first and last phase."""
        turns = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size) - 1.0
        quiet, burst = (rate * turns - change for rate, change in zip(self.arrivals, self.changes, strict=True))
        middle, half = (quiet + burst) / 2, (quiet - burst) / 2
        root = np.sqrt(half * half + self.changes[0] * self.changes[1] + 0j)
        slow, fast = np.exp((middle + root) * execs), np.exp((middle - root) * execs)
        even, odd = (slow + fast) / 2, (slow - fast) / (2 * root)
        return np.array([[even + odd * half, odd * self.changes[0]], [odd * self.changes[1], even - odd * half]])

    def waits(self) -> Floats:
        """Returns by phase the mean time until a request comes."""
        found: Floats = np.asarray(np.linalg.solve(self._stays(), np.ones(2)), dtype=np.float64)
        return found

    def phase_then(self) -> Floats:
        """Returns the phase at the next request, by the phase now."""
        found: Floats = np.asarray(np.linalg.solve(self._stays(), np.diag(self.arrivals)), dtype=np.float64)
        return found

    def _stays(self) -> Floats:
        there, back = self.changes
        found: Floats = np.diag(self.arrivals + self.changes) - np.array([[0.0, there], [back, 0.0]])
        return found


def modulation(batch: int, load: float, weight: float, ratio: float) -> Modulation:
    """Returns the arrivals at a server of this batch and load whose SLO is `ratio` execs."""
    a_phase = CHANGES_PER_SLO / ratio
    factors = np.array([1.0 / (1.0 + weight), 1.0 / (1.0 - weight)])
    changes = np.array([a_phase * (1.0 - weight) / 2, a_phase * (1.0 + weight) / 2])
    return Modulation(load * batch * factors, changes)


def late_share(batch: int, load: float, weight: float, ratio: float) -> float:
    """Returns the share of requests that take longer than `ratio` execs, at batch timeout 0."""
    if not (0.0 < load < 1.0 and 0.0 < weight < 1.0 and ratio >= 1.0):
        raise ValueError(f"load {load:g} or weight {weight:g} is outside 0..1, or ratio {ratio:g} is below 1")
    arriving = modulation(batch, load, weight, ratio)
    if load > MOST_BURST_LOAD * (1.0 - weight):
        return 1.0
    states = int(batch * (ratio + 2.0)) + 64
    while True:
        waiting = _waiting(batch, arriving, states)
        if waiting[:, int(0.8 * states) :].sum() < TAIL:
            return _late(batch, arriving, ratio, waiting) / (load * batch)
        states *= 2
        if states > LONGEST * batch * (ratio + 2.0) + 1000:
            return 1.0


def _late(batch: int, arriving: Modulation, ratio: float, waiting: Floats) -> float:
    """Returns late requests an exec, from those left waiting by a start, by phase and number. See `Chain.late`."""
    whole = math.floor(ratio)
    part = 1.0 - (ratio - whole)
    size = _size(arriving, waiting.shape[1])
    spectrum = np.fft.rfft(waiting, size)

    def beyond(count: int, execs: float) -> float:
        """Returns E[(waiting + arrivals in this time - count)+]."""
        kernel = arriving.generating(size, execs).sum(axis=1)
        mass = np.maximum(np.fft.irfft((spectrum * kernel).sum(axis=0), size), 0.0)[count:]
        return float(mass @ np.arange(len(mass)))

    few, many = (whole - 1) * batch, whole * batch
    late = beyond(few, part) - beyond(few, 0.0) + beyond(many, 1.0) - beyond(many, part)
    kernel = arriving.generating(size, 1.0)
    none = np.fft.irfft((spectrum[:, None, :] * kernel).sum(axis=0), size)[:, 0]
    return max(late, 0.0) / (1.0 + float(none @ arriving.waits()))


def _size(arriving: Modulation, states: int) -> int:
    """Returns a length at which sums of states and arrivals do not wrap around."""
    most = arriving.arrivals[1]
    return 1 << int(np.ceil(np.log2(states + most + 12.0 * math.sqrt(most) + 40.0)))


def _waiting(batch: int, arriving: Modulation, states: int) -> Floats:
    """Returns the stationary chances of a phase and so many requests left waiting behind a start."""
    up, down = _widths(batch, arriving)
    if 2 * up * (up + down) < ITERATING:
        return _eliminate(batch, arriving, states)
    return _iterate(batch, arriving, states)


def _widths(batch: int, arriving: Modulation) -> tuple[int, int]:
    """Returns how far one exec leads up and down, in states of both phases."""
    return 2 * max(_most_arrivals(arriving) - batch, 1) + 1, 2 * batch + 1


def _most_arrivals(arriving: Modulation) -> int:
    most = float(arriving.arrivals[1])
    return int(most + 9.0 * math.sqrt(most)) + 25


def _eliminate(batch: int, arriving: Modulation, states: int) -> Floats:
    """Solves pi = pi P as a banded system, in which the first chance is 1 before all are scaled."""
    from scipy.linalg.lapack import dgbsv

    kept = _most_arrivals(arriving)
    size = _size(arriving, kept)
    kernel = np.maximum(np.fft.irfft(arriving.generating(size, 1.0), size), 0.0)[:, :, :kept]
    up, down = _widths(batch, arriving)
    band = np.zeros((2 * states, 2 * up + down + 1))  # column by column, as LAPACK wants it
    fill_band(band, np.ascontiguousarray(kernel), np.ascontiguousarray(arriving.phase_then()), batch, up, down)
    right = np.zeros(2 * states)
    right[0] = 1.0
    _, _, solved, failed = dgbsv(up, down, band.T, right, overwrite_ab=1)
    if failed:
        raise ArithmeticError(f"the chain of batch {batch} with {states} states has no solution")
    chances: Floats = np.maximum(solved.reshape(states, 2).T / solved.sum(), 0.0)
    return chances


@njit("void(float64[:, ::1], float64[:, :, ::1], float64[:, ::1], int64, int64, int64)")
def fill_band(band: Any, kernel: Any, then: Any, batch: int, up: int, down: int) -> None:
    """Writes I - P transposed, entry (row, column) at [column, up + down + row - column]; row 0 asks for the first."""
    states, kept, middle = band.shape[0] // 2, kernel.shape[2], up + down
    for waiting in range(states):
        for before in range(2):
            column = 2 * waiting + before
            band[column, middle] += 1.0
            for after in range(2):
                for count in range(kept):
                    left = min(max(waiting + count - batch, 0), states - 1)
                    if waiting + count == 0:  # idle: the phase is that at the next request
                        for last in range(2):
                            band[column, middle + last - column] -= kernel[before, after, 0] * then[after, last]
                    else:
                        band[column, middle + 2 * left + after - column] -= kernel[before, after, count]
    for column in range(min(band.shape[0], down + 1)):
        band[column, middle - column] = 0.0
    band[0, middle] = 1.0


def _iterate(batch: int, arriving: Modulation, states: int) -> Floats:
    """Solves pi = pi P with a rank-one shift, by GMRES: an application of P is two transforms."""
    from scipy.sparse.linalg import LinearOperator, gmres

    size = _size(arriving, states)
    kernel = arriving.generating(size, 1.0)
    then = arriving.phase_then()
    first = np.zeros((2, states))
    first[:, 0] = 0.5

    def stepped(flat: Any) -> Floats:
        spectrum = np.fft.rfft(flat.reshape(2, states), size)
        found = np.fft.irfft((spectrum[:, None, :] * kernel).sum(axis=0), size)
        after = np.zeros((2, states))
        kept = min(states, size - batch)
        after[:, :kept] = found[:, batch : batch + kept]
        after[:, 0] += found[:, 1:batch].sum(axis=1) + found[:, 0] @ then
        after[:, -1] += found[:, batch + states :].sum(axis=1)
        rest: Floats = flat - after.ravel() + first.ravel() * flat.sum()
        return rest

    operator = LinearOperator((2 * states, 2 * states), matvec=stepped, dtype=np.float64)
    solved, failed = gmres(operator, first.ravel(), rtol=1e-10, restart=120, maxiter=30)
    if failed:
        raise ArithmeticError(f"the chain of batch {batch} with {states} states does not converge")
    chances: Floats = np.maximum(solved.reshape(2, states) / solved.sum(), 0.0)
    return chances
