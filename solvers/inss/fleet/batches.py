"""InSS's first layer (case 1): other batches where instances and SM% stay, by BDA on each GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from solvers.inss.batching import BatchedModel, Batches, BatchingProblem, BatchOption, decide_batches
from solvers.inss.batching.problem import MOST_BATCH
from solvers.inss.fleet.promises import slowest_ms
from solvers.planning.fleet.grids import BatchRate
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge import Resident
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import slow_down
from solvers.planning.problem import Instance, PlacedJob, Problem

SLACK_SHARE = 1e-6  # of a rate


@dataclass(frozen=True, slots=True)
class RebatchedFleet:
    """The instances with their batches. Where a GPU has no valid batches, its instances keep theirs."""

    seats: tuple[Instance, ...]
    reasons: Mapping[str, str]  # why a GPU has none, by service
    bda: int  # GPUs whose batches are BDA's
    exact: int  # GPUs on which the exact answer serves more


def choose_batches(
    problem: Problem, seats: Sequence[Instance], jobs: Iterable[PlacedJob], rooms: FleetRooms
) -> RebatchedFleet:  # fmt: skip
    """Decides the batches of each GPU for the rates of its instances; `rooms` have what jobs leave of it."""
    gpus = list(gpus_with(problem, seats, jobs).values())
    for gpu in gpus:
        slow_down(gpu, problem.policy)
    options = {line.instance.id: _options(problem, line) for gpu in gpus for line in gpu.residents}
    rates = _rates(problem, [line for gpu in gpus for line in gpu.residents], options)
    chosen: dict[str, Instance] = {}
    reasons: dict[str, str] = {}
    counts = {"BDA": 0, "exact": 0}
    for gpu in gpus:
        if not gpu.residents:
            continue
        models = tuple(_model(line, options[line.instance.id], rates[line.instance.id]) for line in gpu.residents)
        found = decide_batches(BatchingProblem(rooms.spare_gib((gpu.node.name, gpu.index)), models))
        if isinstance(found, Batches):
            counts[found.proof.method] += 1
        else:
            reasons |= dict.fromkeys((line.instance.service for line in gpu.residents), found.reason)
        for line in gpu.residents:
            seat = line.instance
            chosen[seat.id] = seat
            if isinstance(found, Batches) and line.profile:
                batch = sorted(options[seat.id])[found.batches[seat.id] - 1]
                chosen[seat.id] = replace(seat, batch=batch, memory_gib=line.profile.memory_gib[batch])
    return RebatchedFleet(tuple(chosen[seat.id] for seat in seats), reasons, counts["BDA"], counts["exact"])


def _options(problem: Problem, line: Resident) -> dict[int, BatchOption]:
    """Returns latency, throughput and memory of each batch beside the same neighbours."""
    policy, service, profile, alone_ms = problem.policy, line.service, line.profile, line.alone_ms
    assert service
    assert profile
    assert alone_ms
    slower = (line.exec_ms or alone_ms) / alone_ms
    least, found = min(profile.latency_ms), {}
    for batch in sorted(profile.latency_ms)[:MOST_BATCH]:
        at = BatchRate.of(policy, service, profile, batch, line.instance.sm_percent, slower)
        latency_ms = slowest_ms(service, batch, at.exec_ms * (1 + policy.exec_margin), least, policy)
        found[batch] = BatchOption(min(latency_ms, 1e12), at.rate_per_second, at.memory_gib)
    return found


def _rates(
    problem: Problem, lines: Iterable[Resident], options: Mapping[str, Mapping[int, BatchOption]]
) -> dict[str, float]:
    """Divides each service's rate by what its instances carry at their best batch."""
    most: dict[str, dict[str, float]] = defaultdict(dict)
    for line in lines:
        best = max(option.throughput_per_second for option in options[line.instance.id].values())
        most[line.instance.service][line.instance.id] = best
    found = {}
    for name, by_seat in most.items():
        total = sum(by_seat.values())
        for seat, best in by_seat.items():
            found[seat] = problem.services[name].rate_per_second * (best / total if total else 1 / len(by_seat))
    return found


def _model(line: Resident, options: Mapping[int, BatchOption], rate: float) -> BatchedModel:
    service, batches = line.service, sorted(options)
    assert service
    position = batches.index(line.instance.batch) + 1 if line.instance.batch in batches else 1
    ordered = tuple(options[batch] for batch in batches)
    return BatchedModel(line.instance.id, service.slo_ms, max(rate * (1 - SLACK_SHARE), 1e-9), ordered, position)
