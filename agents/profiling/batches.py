"""Times batches in a closed loop until their mean is known well enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, stdev

from agents.profiling.closed_loop import ClosedLoop, LoopFailed
from agents.seams.traffic import Served

LEAST_BATCHES = 10
MOST_BATCHES = 2000
NOISE_PART = 0.25  # of the accuracy asked for: so small must the standard error of a single setting be
FEWEST_BATCHES = 3  # where a batch takes so long that the time is up before
MOST_SPLIT_SHARE = 0.5  # of the rounds may have been served as more than one batch


@dataclass(frozen=True, slots=True)
class TimingEffort:
    """The time to measure one setting: for the least time at least, then until it is known, or the most is over."""

    accuracy: float
    least_seconds: float
    most_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The mean time of a batch, the standard deviation of single batches, and how many ran."""

    latency_ms: float
    spread_ms: float
    samples: int
    source: str  # whose clock: server, client
    busy_share: float = 1.0  # of the time of the loop: between two batches the copy waits for the client

    @property
    def noise(self) -> float:
        """The standard error of the mean, as a share of it."""
        return float(self.spread_ms / self.samples**0.5 / self.latency_ms)


def time_batches(
    loop: ClosedLoop, read_served: Callable[[], Served | None], effort: TimingEffort, each: Callable[[float], None]
) -> BatchTimes:
    """Asks batch after batch, and returns how long they take by the server's own clock, else by ours.

    `each` is called after every batch with the seconds since the beginning; it may raise Interrupted. Time between
    batches does not count, so that the reading of counters and the client's own work do not either.
    """
    loop.ask()  # the first one may still load something
    before = read_served()
    counts = before is not None and before.busy_seconds is not None and before.batches is not None
    seconds: list[float] = []
    split, began = 0, time.monotonic()
    while True:
        taken = loop.ask()
        if counts:
            after = read_served()
            measured = _one_batch(before, after)
            before = after
            split += measured is None
            if measured is not None:
                seconds.append(measured)
        else:
            seconds.append(taken)
        elapsed = time.monotonic() - began
        each(elapsed)
        if split >= LEAST_BATCHES and split > MOST_SPLIT_SHARE * (split + len(seconds)):
            raise LoopFailed("the server divides the requests of a batch, so a batch of this size was not measured")
        if len(seconds) >= FEWEST_BATCHES and _is_enough(seconds, elapsed, effort):
            return _times(seconds, "server" if counts else "client", elapsed)
        if elapsed > 4 * effort.most_seconds:
            raise LoopFailed(f"only {len(seconds)} batches ended within {elapsed:.0f} s")


def _one_batch(before: Served | None, after: Served | None) -> float | None:
    """Returns the seconds that the server computed between two readings; None unless that was exactly one batch."""
    if before is None or after is None or before.batches is None or after.batches is None:
        return None
    if before.busy_seconds is None or after.busy_seconds is None or after.batches - before.batches != 1:
        return None
    computed = after.busy_seconds - before.busy_seconds
    return computed if computed > 0 else None


def _is_enough(seconds: list[float], elapsed: float, effort: TimingEffort) -> bool:
    if elapsed < effort.least_seconds:
        return False
    if elapsed >= effort.most_seconds or len(seconds) >= MOST_BATCHES:
        return True
    return len(seconds) >= LEAST_BATCHES and _times(seconds, "", elapsed).noise <= NOISE_PART * effort.accuracy


def _times(seconds: list[float], source: str, elapsed: float) -> BatchTimes:
    busy_share = min(1.0, sum(seconds) / elapsed) if elapsed > 0 else 1.0
    return BatchTimes(1000 * fmean(seconds), 1000 * stdev(seconds), len(seconds), source, busy_share)
