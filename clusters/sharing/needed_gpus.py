"""How many GPUs serve a load within its SLO when they are shared, by what a request takes of a GPU.

SMs of kernels are not seen one by one: their mean bounds how much slower a request is on fewer SMs. It is slowed down
least where all kernels have the same width, and most where some fill the GPU and the others hardly need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # of a GPU's SMs that a replica may have
BATCHES = (1, 2, 4, 8, 16, 32)
MOST_BUSY = 0.76  # of a replica's time: more leaves nothing for a load that is not even
JUDGED_TIMES = 1.05  # as long as measured, that a request counts
LEAST_TIMES = 1.9  # of one service, that the SLO allows: nearly each request may find another under way
# Of 99 % of requests, as of a queue that serves each alike: time in times of one service is START + QUEUE x use / (1 -
# use), and use falls with the batch that waits. Where hardly anybody waits, it is the service behind another.
QUEUE_START, QUEUE = 1.5, 2.9
ALONE_USE = 0.01  # of a replica's time: below, 99 % of requests do not wait


@dataclass(frozen=True, slots=True)
class RequestWork:
    """What one request takes of a GPU that it has for itself."""

    seconds: float
    sm_share: float  # on average while it is under way, waits for the host with it


@dataclass(frozen=True, slots=True)
class KernelGuess:
    """What meters do not show, as it may be."""

    time_times: float  # of a request's time: a histogram says no more than the bound of a bucket above it
    mixture: float  # of kernels: 0, all have the same width; 1, they need the whole GPU or hardly any of it
    batch_base: float  # of a request's time, for each more in its batch, whatever SMs it takes
    batch_slope: float  # and by its share of SMs: what fills a GPU takes twice as long for two
    neighbours: float  # times that it takes beside others

    def slow_down(self, work: RequestWork, share: float) -> float:
        """Returns how many times as long a request takes with this share of the SMs."""
        even, mixed = max(1.0, work.sm_share / share), 1 - work.sm_share + work.sm_share / share
        return (1 - self.mixture) * even + self.mixture * mixed

    def batch_times(self, work: RequestWork, batch: int) -> float:
        return 1 + min(1.0, self.batch_base + self.batch_slope * work.sm_share) * (batch - 1)


def count_gpus(rate_per_second: float, slo_seconds: float, least: int, work: RequestWork, guess: KernelGuess) -> float:
    """Returns the fewest GPUs, in parts, that serve the load; infinite where no share of one keeps the SLO."""
    best = inf
    for batch in BATCHES:
        alone = JUDGED_TIMES * work.seconds * guess.neighbours * guess.batch_times(work, batch)
        if alone * LEAST_TIMES > slo_seconds:
            break
        for share in SHARES:
            seconds = alone * guess.slow_down(work, share)
            use = find_use(slo_seconds / seconds, batch)
            if use > 0:
                replicas = max(least, ceil(rate_per_second * seconds / (JUDGED_TIMES * batch * use)))
                best = min(best, replicas * share)
    return best


def find_use(times: float, batch: int) -> float:
    """Returns how busy a replica may be whose requests may take so many times as long as one service."""
    over = times - QUEUE_START
    return min(MOST_BUSY, over / (over + QUEUE / batch)) if times >= LEAST_TIMES else 0.0


def find_service_seconds(latency_seconds: float, rate_per_second: float) -> float:
    """Returns how long a request takes by itself, of a latency that 99 % keep at this rate of a replica."""
    low, high = 0.0, latency_seconds
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * _latency_times(rate_per_second * middle) < latency_seconds else (
            low, middle,
        )  # fmt: skip
    return high


def _latency_times(use: float) -> float:
    if use >= 1:
        return inf
    return 1.0 if use <= ALONE_USE else max(2 - ALONE_USE / use, QUEUE_START + QUEUE * use / (1 - use))
