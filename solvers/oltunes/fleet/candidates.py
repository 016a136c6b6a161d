"""Tuning (O2): scores each shape of a task by objective (4) with power (7), and keeps three of the two best GPU types.

Latencies and throughputs are those of the profiles, which contain what was learned where nothing was measured (O1).
In (4) a higher estimated power raises the objective, although the paper's example prefers the lower one; here power
lowers it. Each term is a share of the best candidate's, as their units differ. Ours: alpha, which is not printed, and
that a throughput above the rate that the task is short of counts for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.planning.fleet.offers import FleetShape
from solvers.planning.growing import is_critical
from solvers.planning.machines import GpuType
from solvers.planning.problem import Problem, Service

CRITICAL_WEIGHT, ORIENTED_WEIGHT = 0.6, 0.25  # lambda of the two classes of work
ALPHA = 0.5
BEST_TYPES, BEST_RECORDS = 2, 3


@dataclass(frozen=True, slots=True)
class TunedRecord:
    """A candidate of D (6): a shape with its score."""

    shape: FleetShape
    score: float


def estimate_power_w(gpu: GpuType, sm_percent: float, memory_gib: float, latency_seconds: float) -> float:
    """Returns the estimated power of a shape: EPC (7)."""
    return gpu.idle_w + (gpu.max_w - gpu.idle_w) * sm_percent / 100 * memory_gib / gpu.memory_gib * latency_seconds


def score_candidates(
    problem: Problem, service: Service, shapes: Sequence[FleetShape], short: float, load: float
) -> list[TunedRecord]:
    """Returns all candidates, the best first. `load` is beta: the share of the fleet's SMs in use."""
    if not shapes:
        return []
    weight = CRITICAL_WEIGHT if is_critical(service) else ORIENTED_WEIGHT
    wanted = short or service.rate_per_second
    served = [min(shape.rate_per_second, wanted) for shape in shapes]
    watts = [
        estimate_power_w(problem.gpu_types[s.pool.gpu_type], s.sm_percent, s.memory_gib, s.exec_ms / 1000)
        for s in shapes
    ]
    least_ms, most_served, most_w = min(shape.exec_ms for shape in shapes), max(served), max(watts)
    found = []
    for shape, rate, power_w in zip(shapes, served, watts, strict=True):
        score = weight * least_ms / shape.exec_ms + (1 - weight) * rate / most_served
        score += ALPHA * max(0.0, 1 - shape.exec_ms / service.slo_ms) - load * power_w / max(most_w, 1e-9)
        found.append(TunedRecord(shape, score))
    return sorted(found, key=_best_first)


def best_records(records: Sequence[TunedRecord]) -> list[TunedRecord]:
    """Returns the three best candidates on each of the two best GPU types: D (5), (6)."""
    types = list(dict.fromkeys(record.shape.pool.gpu_type for record in records))[:BEST_TYPES]
    found = []
    for gpu_type in types:
        found += [record for record in records if record.shape.pool.gpu_type == gpu_type][:BEST_RECORDS]
    return found


def _best_first(record: TunedRecord) -> tuple[float, str, str, int, int]:
    shape = record.shape
    return -record.score, shape.pool.gpu_type, shape.variant, shape.batch, shape.sm_percent
