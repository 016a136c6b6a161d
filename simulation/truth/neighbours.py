"""The contention of neighbours on one GPU: SMs, DRAM, L2 and the launch queue.

A slowed load asks for less a second, so slowdowns are the fixed point of all together. They saturate, and do not add
up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulation.truth.load import GpuPhysics, PhysicalLoad, SharedTimes, times, total

ROUNDS = 12
DAMPING = 0.5
MOST_BLOCKED = 10.0  # kernels of others in front of an own one, at which waiting saturates
LEAST_SHARE = 0.02  # of SMs or bandwidth, however hard the others press


@dataclass(frozen=True, slots=True)
class ActiveLoad:
    """A load as it runs: its batch, and its share of the SMs."""

    load: PhysicalLoad
    batch: float
    sm_share: float

    def __post_init__(self) -> None:
        if not 0 < self.sm_share <= 1:
            raise ValueError(f"an SM share of {self.sm_share:g} is outside 0..1")


def paces(gpu: GpuPhysics, residents: Sequence[ActiveLoad], clock_share: float) -> list[Pace]:
    """Returns the pace of each while all of them are busy."""
    alone = [times(resident.load, gpu, resident.batch, resident.sm_share, clock_share) for resident in residents]
    states = [Pace() for _ in residents]
    if len(residents) < 2:
        return states
    for _ in range(ROUNDS):
        evicted = _count_evicted(gpu, residents, alone, states)
        found = [_find_pace(gpu, residents, alone, states, evicted, place) for place in range(len(states))]
        states = [before.toward(after) for before, after in zip(states, found, strict=True)]
    return states


@dataclass(frozen=True, slots=True)
class Pace:
    """By how much neighbours stretch the time of a batch, and of the computing in it."""

    slow: float = 1.0
    compute: float = 1.0

    def toward(self, other: Pace) -> Pace:
        return Pace(
            self.slow + DAMPING * (other.slow - self.slow), self.compute + DAMPING * (other.compute - self.compute)
        )


def _find_pace(
    gpu: GpuPhysics,
    residents: Sequence[ActiveLoad],
    alone: Sequence[SharedTimes],
    states: Sequence[Pace],
    evicted: Sequence[float],
    place: int,
) -> Pace:
    """Returns the pace of the resident at this place, beside the others at theirs."""
    mine = alone[place]
    others = [number for number in range(len(states)) if number != place]
    bandwidth = sum(find_pulled_share(alone[number], states[number], evicted[number]) for number in others)
    launches = sum(
        (alone[number].launch + alone[number].host) / (alone[number].alone * states[number].slow) for number in others
    )
    computing = _computing(gpu, residents, alone, states, place)
    left = max(1 - bandwidth, mine.pull / (mine.pull + sum(alone[number].pull for number in others)), LEAST_SHARE)
    sharp = gpu.dram_sharpness
    pressed = ((1 + (mine.pull / left) ** sharp) / (1 + mine.pull**sharp)) ** (1 / sharp)
    move = mine.move * (1 + evicted[place]) * pressed * (1 + gpu.dram_wait * min(1.0, bandwidth))
    queued = 1 + gpu.queue_wait * launches / (1 + launches)
    slowed = total(gpu, mine.host * queued, mine.launch * queued, mine.compute * computing, move)
    return Pace(slowed / mine.alone, computing)


def _computing(
    gpu: GpuPhysics, residents: Sequence[ActiveLoad], alone: Sequence[SharedTimes], states: Sequence[Pace], place: int
) -> float:
    """Returns how many times as long computing takes where shares of the SMs overlap; 1 where they do not.

    While no other computes it has all SMs of its share; else a part by the blocks that each brings, and its kernels
    wait for the others' kernels.
    """
    mine, me = alone[place], residents[place]
    others = [number for number in range(len(states)) if number != place]
    asked = me.sm_share + sum(residents[number].sm_share for number in others)
    if asked <= 1 + 1e-9:
        return 1.0
    busy = {number: min(1.0, find_occupied_share(alone[number], states[number])) for number in others}
    idle = 1.0
    for share in busy.values():
        idle *= 1 - share
    any_busy = max(1 - idle, 1e-9)
    weight = me.load.weight * mine.sms
    against = sum(busy[number] * residents[number].load.weight * alone[number].sms for number in others) / any_busy
    free = 1 - sum(busy[number] * alone[number].sms for number in others) / any_busy
    beside = min(mine.sms, max(weight / (weight + against), free, LEAST_SHARE))
    blocked = sum(
        busy[number] * alone[number].sms * (residents[number].load.weight / me.load.weight) ** 0.5 for number in others
    )
    overlapping = min(1.0, (asked - 1) / me.sm_share)
    waiting = gpu.block_wait * overlapping * blocked / (1 + blocked / MOST_BLOCKED)
    return float(mine.sms / (idle * mine.sms + any_busy * beside) * (1 + waiting))


def find_occupied_share(alone: SharedTimes, state: Pace) -> float:
    """Returns the part of the time in which it computes."""
    return alone.compute * state.compute / (alone.alone * state.slow)


def find_pulled_share(alone: SharedTimes, state: Pace, evicted: float = 0.0) -> float:
    """Returns the share of the bandwidth that it uses, over time."""
    return alone.moved * (1 + evicted) / (alone.alone * state.slow)


def _count_evicted(
    gpu: GpuPhysics, residents: Sequence[ActiveLoad], alone: Sequence[SharedTimes], states: Sequence[Pace]
) -> list[float]:
    """Returns how much more each moves, because others evict from L2 what it would use again."""
    needs = [resident.load.l2_need / gpu.l2_size for resident in residents]
    if sum(needs) <= 1:
        return [0.0] * len(needs)
    touched = [
        need * (find_occupied_share(part, state) * part.sms + find_pulled_share(part, state))
        for need, part, state in zip(needs, alone, states, strict=True)
    ]
    found = []
    for resident, need, touch in zip(residents, needs, touched, strict=True):
        kept = min(1.0, touch / max(sum(touched), 1e-12) / need) if need > 0 else 1.0
        alone_kept = min(1.0, 1 / need) if need > 0 else 1.0
        found.append(resident.load.l2_reuse * max(0.0, alone_kept - kept))
    return found
