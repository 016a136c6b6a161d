"""The batch server at its service completions: an exact Markov chain, solved by two Fourier transforms.

Time is counted in execs. A request that arrives at phase u of a service, with n others ahead of it, leaves after
2 - u + floor(n / batch), because a free server starts at once. So the chain of requests left waiting by each service
determines every latency, and nothing is simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Chain:
    """The stationary distribution of the requests that wait behind a service that just began."""

    batch: int
    load: float
    waiting: Floats  # probability that so many requests are left waiting
    spectrum: NDArray[np.complex128]  # its Fourier transform

    @property
    def arrivals_per_exec(self) -> float:
        """Requests that arrive during one exec, on average."""
        return self.load * self.batch

    @property
    def none_left(self) -> float:
        """The probability that a service takes all requests that waited."""
        return float(self.waiting[0])

    def late(self, ratios: Floats) -> Floats:
        """Returns, of the requests that find the server busy, the share that takes longer than these ratios x exec."""
        whole = np.floor(ratios).astype(int)
        phases = 1.0 - (ratios - whole)  # arrivals after this phase may have one more batch ahead of them
        shares = np.empty(len(ratios))
        at_start = _excess(self.waiting)
        at_end = self._excess_at(1.0)
        for phase in np.unique(phases):
            chosen = phases == phase
            between = self._excess_at(float(phase))
            few, many = (whole[chosen] - 1) * self.batch, whole[chosen] * self.batch
            early = np.where(
                few > 0, _read_value(between, few) - _read_value(at_start, few), self.arrivals_per_exec * phase
            )
            shares[chosen] = early + _read_value(at_end, many) - _read_value(between, many)
        return np.clip(shares / self.arrivals_per_exec, 0.0, 1.0)

    def _excess_at(self, phase: float) -> Floats:
        """Returns E[(waiting + arrivals up to this phase - c)+] by c, which counts arrivals with c or more ahead."""
        size = len(self.waiting)
        turns = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
        return _excess(np.fft.irfft(self.spectrum * np.exp(self.arrivals_per_exec * phase * (turns - 1.0)), size))


def solve(batch: int, load: float) -> Chain:
    """Solves the chain of a server of this batch at this load = rate x exec / batch, 0 < load < 1.

    The number left waiting is the maximum of a random walk with steps arrivals - batch, so it is compound Poisson
    (Spitzer): its jumps of size j > 0 have the intensities sum over n of P(S_n = j) / n, the coefficients of
    -log(1 - E[z^arrivals] z^-batch). They are computed on a circle on which that function is analytic, with the
    radius at which it varies least; both ends decay like (1 - load) there, which sets the length.
    """
    if not 0.0 < load < 1.0:
        raise ValueError(f"load {load:g} has no stationary state; it must be over 0 and under 1")
    arrivals_per_exec = load * batch
    length = max(8.0 * batch, 80.0 / (1.0 - load), 1024.0)
    size = 1 << int(np.ceil(np.log2(length)))
    turns = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    radius = min(1.0 / load, 1.05)
    step = np.exp(arrivals_per_exec * (radius * turns - 1.0) - batch * np.log(radius)) * turns ** (-batch)
    coefficients = -np.fft.irfft(np.log1p(-step), size)
    jumps = np.zeros(size)
    above = np.arange(1, size // 2)
    jumps[above] = coefficients[above] * np.exp(-above * np.log(radius))
    spectrum = np.exp(np.fft.rfft(jumps) - jumps.sum())
    return Chain(batch, load, np.maximum(np.fft.irfft(spectrum, size), 0.0), spectrum)


def attainment(chain: Chain, ratios: Floats, timeout: float = 0.0) -> Floats:
    """Returns the share of requests done within these ratios x exec, under a batch timeout in execs.

    It holds for timeouts of at most 1 and ratios of at least 1 + timeout; smaller ratios count as never met. Requests
    that a service leaves behind have waited an exec at the next completion. So such a timeout delays only those
    starts for which no request was left, and these start in time for all their requests. The late requests per
    service stay the same; only the requests per service grow. Hence more load is never better, and a longer timeout
    never worse.
    """
    return np.where(ratios < 1.0 + timeout, 0.0, 1.0 - chain.late(np.maximum(ratios, 1.0)) / cycle(chain, timeout))


def cycle(chain: Chain, timeout: float = 0.0) -> float:
    """Returns the mean time between starts, in execs: 1, plus the mean wait if the last service left no request.

    The server still waits at s > 1 if no request came up to s - timeout and fewer than a batch since then.
    """
    if not 0.0 <= timeout <= 1.0:
        raise ValueError(f"timeout {timeout:g} execs is outside 0..1")
    from scipy.special import gammaincc

    unfilled = float(gammaincc(chain.batch, chain.arrivals_per_exec * timeout)) if timeout else 1.0
    return (
        1.0
        + chain.none_left * math.exp(-chain.arrivals_per_exec * (1.0 - timeout)) * unfilled / chain.arrivals_per_exec
    )


def _excess(mass: Floats) -> Floats:
    """Returns E[(X - c)+] by c, from the probabilities of X."""
    above = np.cumsum(mass[::-1])[::-1]  # P(X >= c)
    return np.append(np.cumsum(above[::-1])[::-1][1:], 0.0)  # the sum of P(X > s) over s >= c


def _read_value(values: Floats, index: NDArray[np.int64]) -> Floats:
    return np.where(index < len(values), values[np.minimum(index, len(values) - 1)], 0.0)
