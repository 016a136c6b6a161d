"""Computes what a running instance could carry with its own batch, and with the batches that its memory allows."""

from __future__ import annotations

from collections.abc import Iterator

from solvers.planning.fleet.grids import BatchRate
from solvers.planning.judge.readings import Resident
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.problem import Policy


def batch_capacity(resident: Resident, policy: Policy, batch: int) -> BatchRate | None:
    """Returns what an instance carries at this batch with its GPU and SM%; None if its SLO cannot be kept."""
    profile, service, line = resident.profile, resident.service, resident.instance
    if profile is None or service is None or resident.exec_ms is None or not resident.alone_ms:
        return None
    if batch not in profile.latency_ms:
        return None
    slower = resident.exec_ms / resident.alone_ms  # neighbours and clock slow every batch alike
    found = BatchRate.of(policy, service, profile, batch, line.sm_percent, slower)
    return found if found.rate_per_second > 0 else None


def fitting_batches(resident: Resident, policy: Policy, memory_gib: float) -> Iterator[BatchRate]:
    """Yields every batch that fits into this memory."""
    if resident.profile is None:
        return
    for batch, needed in sorted(resident.profile.memory_gib.items()):
        if is_at_most(needed, memory_gib):
            found = batch_capacity(resident, policy, batch)
            if found:
                yield found


def best_batch(resident: Resident, policy: Policy, memory_gib: float) -> BatchRate | None:
    """Returns the batch that carries most; of equal ones the smallest, which answers sooner."""
    return max(
        fitting_batches(resident, policy, memory_gib),
        key=lambda batch: (batch.rate_per_second, -batch.batch),
        default=None,
    )
