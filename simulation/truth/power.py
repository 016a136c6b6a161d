"""Power by activity: what computing and moving draw, and how far a GPU lowers its clock to stay within its limit."""

from __future__ import annotations

from collections.abc import Sequence

from simulation.truth.load import GpuPhysics, times
from simulation.truth.neighbours import ActiveLoad, Pace, occupied, paces, pulled

LEAST_CLOCK_SHARE = 0.15


def busy_watts(gpu: GpuPhysics, resident: ActiveLoad, state: Pace, clock_share: float) -> float:
    """Returns what a busy load draws above idle. Computing follows the clock, moving does not."""
    alone = times(resident.load, gpu, resident.batch, resident.sm_share, clock_share)
    computes = resident.load.compute_w * alone.sms * min(1.0, occupied(alone, state))
    moves = resident.load.move_w * min(1.0, pulled(alone, state))
    return float(computes * clock_share**gpu.power_exponent + moves)


def within_limit(gpu: GpuPhysics, residents: Sequence[ActiveLoad], clock_share: float) -> float:
    """Returns the clock at which all of them together stay within the GPU's limit, at most the one asked for."""
    for _ in range(3):
        states = paces(gpu, residents, clock_share)
        drawn = sum(
            busy_watts(gpu, resident, state, clock_share) for resident, state in zip(residents, states, strict=True)
        )
        room = gpu.max_w - gpu.idle_w
        if drawn <= room * 1.001:
            break
        clock_share = max(LEAST_CLOCK_SHARE, clock_share * (room / drawn) ** (1 / gpu.power_exponent))
    return clock_share
