"""Finds the rates that given instances carry within their SLOs, however they were chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum

from solvers.planning.fleet.grids import accepted_rate
from solvers.planning.fleet.offers import read_offers
from solvers.planning.fleet.predictions import predict_with_exec
from solvers.planning.judge import Resident
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import slow_down, watts
from solvers.planning.judge.services import find_counted_place
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.plan import NONE_UNSERVED_SHARE
from solvers.planning.problem import Instance, PlacedJob, Problem, Service
from solvers.planning.search.realise import spread_evenly

ROUNDING_SHARE = 1e-8  # of a rate: beside jobs, the same is computed in another order, within 1e-9 a step


def is_admitted(problem: Problem, line: Instance) -> bool:
    """Returns whether the service may still run this instance: declarations and GPUs may have changed."""
    service, node = problem.services[line.service], problem.nodes.get(line.node)
    if node is None or not node.has_gpu(line.gpu):
        return False
    profiles = read_offers(problem).find_profiles(service, node)
    return any(profile.variant == line.variant and line.batch in profile.latency_ms for profile in profiles)


def admitted(problem: Problem, running: Iterable[Instance], jobs: Iterable[PlacedJob] = ()) -> list[Instance]:
    """Returns the instances that may stay as they are, which a cap of their GPU's watts may forbid.

    Of those on a GPU that may draw less than before, the services of least priority give way.
    """
    found = [line for line in running if is_admitted(problem, line)]
    if not any(node.caps_w for node in problem.nodes.values()):
        return found
    gone: set[int] = set()
    for gpu in gpus_with(problem, found, [job for job in jobs if job.job in problem.jobs]).values():
        order = sorted(gpu.residents, key=lambda r: (-problem.services[r.instance.service].priority, r.instance.id))
        drawn = fsum([gpu.type.idle_w, *(watts(job, gpu) for job in gpu.jobs), *(watts(line, gpu) for line in order)])
        while order and not is_at_most(drawn, gpu.type.max_w):
            last = order.pop()
            drawn -= watts(last, gpu)
            gone.add(id(last.instance))
    return [line for line in found if id(line) not in gone]


def accepted_rates(problem: Problem, seats: Sequence[Instance], jobs: Iterable[PlacedJob] = ()) -> list[float]:
    """Returns the largest rate of each instance among these neighbours: its SLO holds, and it is not too busy."""
    lines = _residents(problem, seats, jobs)
    return [_accepted(problem, lines[id(seat)]) for seat in seats]


def carry(
    problem: Problem, seats: Sequence[Instance], jobs: Iterable[PlacedJob] = ()
) -> tuple[list[Instance], dict[str, float]]:
    """Returns the instances that carry anything, with rates, timeouts and predictions, and unserved rates by service.

    A service with fewer than minInstances is left out as a whole.
    """
    kept, carried = list(seats), _carried(problem, seats, jobs)
    while (left := [seat for own, _ in carried.values() for seat, _ in own]) and len(left) < len(kept):
        # Where shares are paid, those that stay are slower: strangers may take the SMs of those that leave.
        kept, carried = left, _carried(problem, left, jobs)
    found: list[Instance] = []
    unserved: dict[str, float] = {}
    for name, (own, rest) in carried.items():
        found += [replace(seat, rate_per_second=rate) for seat, rate in own]
        if rest > NONE_UNSERVED_SHARE * problem.services[name].rate_per_second or not own:
            unserved[name] = rest
    return _predicted(problem, found, jobs), unserved


def _carried(
    problem: Problem, seats: Sequence[Instance], jobs: Iterable[PlacedJob]
) -> dict[str, tuple[list[tuple[Instance, float]], float]]:
    """Returns by service what its instances carry among all of these, and the rate that is left."""
    mine: dict[str, list[tuple[Instance, float]]] = {name: [] for name in problem.services}
    for seat, rate in zip(seats, accepted_rates(problem, seats, jobs), strict=True):
        if rate > 0:
            mine[seat.service].append((seat, rate))
    found = {}
    for name, own in mine.items():
        service = problem.services[name]
        limited = _apart(problem, service, own)
        if len(limited) < service.min_instances:
            limited = []
        shares = spread_rate(service, [rate for _, rate in limited]) if limited else []
        lines = [(seat, share) for (seat, _), share in zip(limited, shares, strict=True)]
        found[name] = lines, service.rate_per_second - sum(shares)
    return found


def _apart(problem: Problem, service: Service, own: Sequence[tuple[Instance, float]]) -> list[tuple[Instance, float]]:
    """Limits instances so that the minInstances largest are on as many GPUs, nodes or regions as `spread` asks for.

    Returns none where they are on fewer.
    """
    least = service.min_instances
    if least < 2:
        return list(own)
    best: dict[object, float] = {}
    first: dict[object, int] = {}
    for number, (seat, rate) in enumerate(own):
        if rate > best.get(key := find_counted_place(problem, service, seat), 0.0):
            best[key], first[key] = rate, number
    if len(best) < least:
        return []
    most = sorted(best.values(), reverse=True)[least - 1]
    free = set(first.values())
    return [(seat, rate if number in free else min(rate, most)) for number, (seat, rate) in enumerate(own)]


def spread_rate(service: Service, most: Sequence[float]) -> list[float]:
    """Divides a service's rate by what its instances carry at most; evenly where several of them must carry much."""
    if service.min_instances > 1:
        return spread_evenly(list(most), service.rate_per_second, service.min_instances)
    share = min(1.0, service.rate_per_second / sum(most))
    return [rate * share for rate in most]


def _residents(
    problem: Problem, seats: Sequence[Instance], jobs: Iterable[PlacedJob]
) -> Mapping[int, Resident]:  # fmt: skip
    gpus = gpus_with(problem, seats, jobs)
    for gpu in gpus.values():
        slow_down(gpu, problem.policy)
    return {id(line.instance): line for gpu in gpus.values() for line in gpu.residents}


def _accepted(problem: Problem, line: Resident) -> float:
    if line.exec_ms is None or line.service is None:
        return 0.0  # its shape was never measured
    return accepted_rate(problem.policy, line.service, line.instance.batch, line.exec_ms) * (1 - ROUNDING_SHARE)


def _predicted(problem: Problem, lines: Sequence[Instance], jobs: Iterable[PlacedJob]) -> list[Instance]:
    residents = _residents(problem, lines, jobs)
    found = []
    for line in lines:
        service, exec_ms = problem.services[line.service], residents[id(line)].exec_ms
        assert exec_ms is not None
        found.append(predict_with_exec(line, exec_ms, service, problem.policy) or replace(line, exec_ms=exec_ms))
    return found
