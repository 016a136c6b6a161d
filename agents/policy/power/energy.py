"""Counts one GPU's energy as a total that only grows, from a counter that restarts at 0 with the driver."""

from __future__ import annotations

from dataclasses import dataclass

from agents.policy.power.samples import MOST_W

LONGEST_GAP_SECONDS = 60.0  # after a longer gap the energy is unknown, and nothing is added


@dataclass(frozen=True, slots=True)
class Energy:
    """Millijoules since counting began; saved, so that they survive restarts of the agent."""

    total_mj: int = 0
    estimated_mj: int = 0  # of the total, from watts times seconds while there was no counter
    counter_mj: int | None = None  # as last read
    at: float | None = None  # seconds, by any clock that does not stop
    resets: int = 0
    unknown_seconds: float = 0.0  # with neither counter nor watts, or in too long a gap


def add_reading(energy: Energy, counter_mj: int | None, mean_w: float | None, at: float) -> Energy:
    """Adds a reading: the counter's difference if there is one, else watts times the time since the last."""
    if counter_mj is not None and counter_mj < 0:
        counter_mj = None
    if mean_w is not None and not 0 <= mean_w <= MOST_W:
        mean_w = None
    seconds = 0.0 if energy.at is None else max(0.0, at - energy.at)
    at = at if energy.at is None else max(at, energy.at)
    before = energy.counter_mj
    if counter_mj is not None and before is not None and counter_mj >= before:
        return Energy(
            energy.total_mj + counter_mj - before, energy.estimated_mj, counter_mj, at, energy.resets,
            energy.unknown_seconds,
        )  # fmt: skip
    known = seconds <= LONGEST_GAP_SECONDS and mean_w is not None
    drawn = round((mean_w or 0.0) * seconds * 1000) if known else 0
    unknown = energy.unknown_seconds + (0.0 if known else seconds)
    if counter_mj is None:
        # What was estimated must not be counted again when the counter is back, so the counter starts again.
        return Energy(energy.total_mj + drawn, energy.estimated_mj + drawn, None, at, energy.resets, unknown)
    if before is None:  # the first reading of all, or the first after a gap
        return Energy(energy.total_mj + drawn, energy.estimated_mj + drawn, counter_mj, at, energy.resets, unknown)
    # The counter has restarted: it has what was drawn since; the watts estimate what was drawn before.
    lost = max(0, drawn - counter_mj)
    return Energy(
        energy.total_mj + counter_mj + lost, energy.estimated_mj + lost, counter_mj, at, energy.resets + 1, unknown
    )
