"""Computes what a running instance could carry with its own batch, and with the batches that its memory allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from solvers.planning.grids import accepted_rate
from solvers.planning.judge.readings import Resident, value_at
from solvers.planning.judge.tolerances import at_most
from solvers.planning.problem import Policy

WITHIN_SHARE = 1 - 1e-9  # of a limit: rates are made of products of floats


@dataclass(frozen=True, slots=True)
class BatchCapacity:
    """A batch, what it carries at most, and its execution time."""

    batch: int
    rate_per_second: float
    exec_ms: float
    memory_gib: float


def batch_capacity(resident: Resident, policy: Policy, batch: int) -> BatchCapacity | None:
    """Returns what an instance carries at this batch with its GPU and SM%; None if its SLO cannot be kept."""
    profile, service, line = resident.profile, resident.service, resident.instance
    if profile is None or service is None or resident.exec_ms is None or not resident.alone_ms:
        return None
    if batch not in profile.latency_ms:
        return None
    # Neighbours and clock slow every batch alike.
    exec_ms = resident.exec_ms / resident.alone_ms * value_at(profile.latency_ms[batch], line.sm_percent)
    rate = accepted_rate(policy, service, batch, exec_ms) * WITHIN_SHARE
    return BatchCapacity(batch, rate, exec_ms, profile.memory_gib[batch]) if rate > 0 else None


def fitting_batches(resident: Resident, policy: Policy, memory_gib: float) -> Iterator[BatchCapacity]:
    """Yields every batch that fits into this memory."""
    if resident.profile is None:
        return
    for batch, needed in sorted(resident.profile.memory_gib.items()):
        if at_most(needed, memory_gib):
            found = batch_capacity(resident, policy, batch)
            if found:
                yield found


def best_batch(resident: Resident, policy: Policy, memory_gib: float) -> BatchCapacity | None:
    """Returns the batch that carries most; of equal ones the smallest, which answers sooner."""
    return max(
        fitting_batches(resident, policy, memory_gib),
        key=lambda batch: (batch.rate_per_second, -batch.batch),
        default=None,
    )
