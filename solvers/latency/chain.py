"""The batch server at its service completions: an exact chain, solved by two Fourier transforms.

Time is counted in execs. A request that arrives at phase u of a service, with n others ahead of it, leaves after
2 - u + floor(n / batch): a free server starts at once. So the chain of what each service leaves waiting says
everything, and nothing is simulated.
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
    """What waits behind a service that just began, in the long run."""

    batch: int
    load: float
    left: Floats  # probability that so many requests are left waiting
    spectrum: NDArray[np.complex128]  # its Fourier transform

    @property
    def per_exec(self) -> float:
        """Requests that arrive during one exec, on average."""
        return self.load * self.batch

    @property
    def none_left(self) -> float:
        """The probability that a service begins with all that waited."""
        return float(self.left[0])

    def late(self, ratios: Floats) -> Floats:
        """Of the requests that come while the server is busy, the share that takes longer than these ratios x exec."""
        whole = np.floor(ratios).astype(int)
        phases = 1.0 - (ratios - whole)  # arrivals after this phase may have one more batch ahead of them
        shares = np.empty(len(ratios))
        at_start = _excess(self.left)
        at_end = self._excess_at(1.0)
        for phase in np.unique(phases):
            chosen = phases == phase
            between = self._excess_at(float(phase))
            few, many = (whole[chosen] - 1) * self.batch, whole[chosen] * self.batch
            early = np.where(few > 0, _at(between, few) - _at(at_start, few), self.per_exec * phase)
            shares[chosen] = early + _at(at_end, many) - _at(between, many)
        return np.clip(shares / self.per_exec, 0.0, 1.0)

    def _excess_at(self, phase: float) -> Floats:
        """E[(left + arrivals up to this phase - c)+] by c: it grows by those that arrive with c or more ahead."""
        size = len(self.left)
        turns = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
        return _excess(np.fft.irfft(self.spectrum * np.exp(self.per_exec * phase * (turns - 1.0)), size))


def solve(batch: int, load: float) -> Chain:
    """The chain of a server of this batch at this load = rate x exec / batch, 0 < load < 1.

    What is left is the maximum of a random walk with steps arrivals - batch, so it is compound Poisson (Spitzer):
    its jumps of size j > 0 have the intensities sum over n of P(S_n = j) / n, the coefficients of
    -log(1 - E[z^arrivals] z^-batch). They are read off a circle on which that function is analytic, of the radius
    where it is tamest; both ends decay like (1 - load) there, which sets the length.
    """
    if not 0.0 < load < 1.0:
        raise ValueError(f"load {load:g} has no long run; allowed is more than 0 and less than 1")
    per_exec = load * batch
    length = max(8.0 * batch, 80.0 / (1.0 - load), 1024.0)
    size = 1 << int(np.ceil(np.log2(length)))
    turns = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    radius = min(1.0 / load, 1.05)
    step = np.exp(per_exec * (radius * turns - 1.0) - batch * np.log(radius)) * turns ** (-batch)
    coefficients = -np.fft.irfft(np.log1p(-step), size)
    jumps = np.zeros(size)
    above = np.arange(1, size // 2)
    jumps[above] = coefficients[above] * np.exp(-above * np.log(radius))
    spectrum = np.exp(np.fft.rfft(jumps) - jumps.sum())
    return Chain(batch, load, np.maximum(np.fft.irfft(spectrum, size), 0.0), spectrum)


def attainment(chain: Chain, ratios: Floats, timeout: float = 0.0) -> Floats:
    """The share of requests done within these ratios x exec, under a batch timeout in execs.

    For timeouts of at most 1, and ratios of at least 1 + timeout; smaller ones count as never met. What a service
    leaves behind has waited an exec at the next completion, so such a timeout delays only starts that nobody was left
    for, and those start in time for all they take. Late requests per service are the same as without; only the
    requests per service are more. As both move one way: more load is never better, a longer timeout never worse.
    """
    return np.where(ratios < 1.0 + timeout, 0.0, 1.0 - chain.late(np.maximum(ratios, 1.0)) / cycle(chain, timeout))


def cycle(chain: Chain, timeout: float = 0.0) -> float:
    """The mean time from one start to the next, in execs: 1, and the wait of those starts that nobody was left for.

    The server is still waiting at s > 1 if none came up to s - timeout and fewer than a batch since.
    """
    if not 0.0 <= timeout <= 1.0:
        raise ValueError(f"timeout {timeout:g} execs is outside 0..1")
    from scipy.special import gammaincc

    unfilled = float(gammaincc(chain.batch, chain.per_exec * timeout)) if timeout else 1.0
    return 1.0 + chain.none_left * math.exp(-chain.per_exec * (1.0 - timeout)) * unfilled / chain.per_exec


def _excess(mass: Floats) -> Floats:
    """E[(X - c)+] by c, from the probabilities of X."""
    above = np.cumsum(mass[::-1])[::-1]  # P(X >= c)
    return np.append(np.cumsum(above[::-1])[::-1][1:], 0.0)  # the sum of P(X > s) over s >= c


def _at(values: Floats, index: NDArray[np.int64]) -> Floats:
    return np.where(index < len(values), values[np.minimum(index, len(values) - 1)], 0.0)
