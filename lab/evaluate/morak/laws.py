"""Morak's baselines as laws on the node: Clipper-L, Clipper-P, DFS and BatchDVFS, as section VI-A describes them.

Each sees one period of a GPU and sets its clock and batches for the next, as the product's own law does. Ours are the
numbers that the paper leaves out: how far a step goes, and the batch of DFS.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from agents.policy.power import law
from agents.policy.power.measurements import ratio, watts
from agents.policy.power.periods import GpuPeriod, PowerMove, PowerState
from agents.policy.power.settings import PowerSettings
from lab.power import printed
from lab.power.trial import Law

CLIPPER_L, CLIPPER_P, DFS, BATCH_DVFS = "clipper-l", "clipper-p", "dfs", "batchdvfs"
ADDED = 4  # requests that AIMD adds to a batch; "a fixed amount" in the paper
BACK_SHARE = 0.9  # of a batch after a limit broke: "reducing the batch size by 10 %"
LARGE_BATCH = 64  # of DFS; "this value is usually large": the printed peak of throughput
MOST_BATCH = 256  # the largest that the paper measured
STEADY_SHARE = 0.95  # of the cap: above it BatchDVFS and DFS stay, as Morak's alpha does
ALGORITHM_GROWTH = 1.1  # of a batch by a step of Algorithm 1: twice as much would jump over its band


@dataclass(frozen=True, slots=True)
class NodeMethod:
    """A law, and the batch and clock that it begins with; None: the planned ones."""

    law: Law
    batch: int | None = None
    starts_slow: bool = False


def clipper_l(state: PowerState, period: GpuPeriod, settings: PowerSettings) -> PowerMove:
    """Grows each batch while its latency is within the limit; power does not matter."""
    return _move(state, period.clock_mhz, {i.id: _aimd(i.batch, (ratio(i) or 0.0) <= 1) for i in period.instances})


def clipper_p(state: PowerState, period: GpuPeriod, settings: PowerSettings) -> PowerMove:
    """Grows each batch while the peak power is within the cap; latency does not matter."""
    fits = _power(period) <= 1
    return _move(state, period.clock_mhz, {i.id: _aimd(i.batch, fits) for i in period.instances})


def dfs(state: PowerState, period: GpuPeriod, settings: PowerSettings) -> PowerMove:
    """Moves the clock by one notch towards the cap; the batch is fixed."""
    return _move(state, _notched(period, _direction(period)), {i.id: i.batch for i in period.instances})


def batch_dvfs(state: PowerState, period: GpuPeriod, settings: PowerSettings) -> PowerMove:
    """Doubles the batch while there are watts for it, then raises the clock; over the cap the clock falls first.

    The paper gives the knobs and the goal alone; the order of moves is ours.
    """
    turn, clock = _direction(period), period.clock_mhz
    batches = {i.id: i.batch for i in period.instances}
    if turn > 0 and min(batches.values()) < LARGE_BATCH:
        batches = {name: min(LARGE_BATCH, 2 * batch) for name, batch in batches.items()}
    elif turn < 0 and clock == period.clocks_mhz[0]:
        batches = {name: max(1, batch // 2) for name, batch in batches.items()}
    else:
        clock = _notched(period, turn)
    return _move(state, clock, batches)


METHODS: dict[str, NodeMethod] = {
    CLIPPER_L: NodeMethod(clipper_l, 1),
    CLIPPER_P: NodeMethod(clipper_p, 1),
    DFS: NodeMethod(dfs, LARGE_BATCH),
    BATCH_DVFS: NodeMethod(batch_dvfs, 1),
}
ALGORITHM_1 = NodeMethod(partial(printed.step, growth=ALGORITHM_GROWTH), 1, starts_slow=True)
OURS = NodeMethod(law.step)


def _aimd(batch: int, grows: bool) -> int:
    return min(MOST_BATCH, batch + ADDED) if grows else max(1, int(batch * BACK_SHARE))


def _power(period: GpuPeriod) -> float:
    return (watts(period) or 0.0) / (period.cap_w or 1.0)


def _direction(period: GpuPeriod) -> int:
    share = _power(period)
    return -1 if share > 1 else int(share < STEADY_SHARE)


def _notched(period: GpuPeriod, turn: int) -> int:
    clocks = period.clocks_mhz
    at = clocks.index(period.clock_mhz or clocks[-1]) + turn
    return clocks[min(max(at, 0), len(clocks) - 1)]


def _move(state: PowerState, clock_mhz: int | None, batches: dict[str, int]) -> PowerMove:
    return PowerMove(state, clock_mhz, batches)
