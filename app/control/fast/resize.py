"""The second rung: more SM% for instances whose GPUs have some to spare (InSS, case 2; Mudi's shadow instance, M6).

A resize starts a second copy next to the first: the GPU's memory must hold both for a while, and under the strict
hand-over its SMs, too. Where preemptible jobs hold what is needed, they may have to go: services come first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from app.control.fast.neighbourhood import Neighbourhood
from app.control.fast.retune import (
    ENOUGH_SHARE,
    SeatedInstance,
    apply_shapes,
    capacity,
    enlarge_batches,
    seats_of,
    share_rate,
)
from app.control.fast.shapes import batch_capacity, best_batch
from solvers.planning.judge import gpus as gpu_rules
from solvers.planning.judge.readings import JudgedGpu, Reader, slow_down
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.problem import Instance, Policy, Problem

PLENTY_FACTOR = 1.5  # times the need: the search for chances ends there; the emptiest GPUs come first
LIMIT_FACTOR = 1 + 2e-9  # of its limit: a neighbour exactly at its limit is still within it


@dataclass(frozen=True, slots=True)
class Growth:
    """A GPU with a larger instance: how much more it carries, and the shapes of the others."""

    seat: SeatedInstance
    others: tuple[SeatedInstance, ...]
    gain_per_second: float


def resize(
    area: Neighbourhood, service: str, target: float, strict: bool, partly: bool = False
) -> Neighbourhood | None:
    """Gives the service spare SM%, so that it carries `target`; None if that is not enough.

    `partly`: it gives as much of it as there is room for, if that is worth a step.
    """
    policy, gpus = area.problem.policy, area.gpus()
    seats = seats_of(gpus, service, policy)
    if not seats:
        return None
    seats = enlarge_batches(seats, policy, target)
    short, grown = target - capacity(seats), dict[str, Growth]()
    chances: list[Growth] = []
    gained = 0.0
    for seat in sorted(
        seats, key=lambda seat: (gpus[seat.resident.instance.place].sm_percent, seat.resident.instance.id)
    ):
        if gained >= PLENTY_FACTOR * short:
            break
        chance = _least_growth(area.problem, gpus[seat.resident.instance.place], seat, short, strict)
        if chance:
            chances.append(chance)
            gained += chance.gain_per_second
    # The largest gain goes first, as each resize is a hand-over. One a GPU: neighbours were judged as they are.
    taken: set[tuple[str, int]] = set()
    for chance in sorted(chances, key=lambda growth: (-growth.gain_per_second, growth.seat.resident.instance.id)):
        line = chance.seat.resident.instance
        if short <= target * (1 - ENOUGH_SHARE):
            break
        if line.place in taken:
            continue
        if chance.gain_per_second > short:  # less of it will do
            old = next(seat for seat in seats if seat.resident.instance.id == line.id)
            less = _least_growth(area.problem, gpus[line.place], old, short, strict)
            grown[line.id] = less or chance
        else:
            grown[line.id] = chance
        taken.add(line.place)
        short -= grown[line.id].gain_per_second
    seats = [grown[seat.resident.instance.id].seat if seat.resident.instance.id in grown else seat for seat in seats]
    others = [seat for growth in grown.values() for seat in growth.others]
    return share_rate(area, service, seats, others, target, partly)


def leave_out_jobs(area: Neighbourhood, jobs: Collection[str]) -> Neighbourhood:
    """Returns the neighbourhood without these jobs."""
    state = area.problem.state
    problem = replace(
        area.problem,
        jobs={name: job for name, job in area.problem.jobs.items() if name not in jobs},
        state=replace(state, jobs=tuple(placed for placed in state.jobs if placed.job not in jobs)) if state else None,
    )
    stay = replace(area.plan, jobs=tuple(placed for placed in area.plan.jobs if placed.job not in jobs))
    places = {placed.place for placed in area.plan.jobs if placed.job in jobs}
    bare = replace(area, problem=problem, plan=stay)
    lines: list[Instance] = []
    for place, gpu in bare.gpus().items():
        if place in places:  # their neighbours answer sooner now
            seats = [
                SeatedInstance(resident, shape)
                for resident in gpu.residents
                if (shape := batch_capacity(resident, problem.policy, resident.instance.batch))
            ]
            lines += apply_shapes(problem, seats, [seat.resident.instance.rate_per_second for seat in seats])
    return bare.becoming(lines, {})


def blocking_jobs(area: Neighbourhood, service: str) -> list[frozenset[str]]:
    """Returns the preemptible jobs next to the service's instances, GPU by GPU, the least important first."""
    places = {line.place for line in area.plan.instances if line.service == service}
    jobs = area.problem.jobs
    jobs_by_place: dict[tuple[str, int], list[str]] = {}
    for placed in area.plan.jobs:
        if placed.place in places:
            jobs_by_place.setdefault(placed.place, []).append(placed.job)

    def importance(names: list[str]) -> tuple[bool, float, list[str]]:
        return any(jobs[name].deadline for name in names), sum(jobs[name].priority for name in names), sorted(names)

    able_to_go = [names for names in jobs_by_place.values() if all(jobs[name].is_preemptible for name in names)]
    return [frozenset(names) for names in sorted(able_to_go, key=importance)]


def _least_growth(problem: Problem, gpu: JudgedGpu, seat: SeatedInstance, need: float, strict: bool) -> Growth | None:
    """Finds the least SM% that gives `need` more, else the most that fits; None if nothing is gained."""
    line, profile = seat.resident.instance, seat.resident.profile
    if profile is None or need <= 0:
        return None
    curve = profile.latency_ms[seat.shape.batch]
    spare = 100 - int(gpu.sm_percent)
    most = min(curve[-1][0], line.sm_percent + spare)
    if strict:
        most = min(most, spare)  # both copies at once
    low, high = line.sm_percent, most  # the same SM% counts too: a copy may start with more memory
    found: Growth | None = None
    while low <= high:
        middle = (low + high) // 2
        growth = _growth_at(problem, gpu, seat, middle)
        if growth is None:
            high = middle - 1
            continue
        if growth.gain_per_second >= need:
            found, high = growth, middle - 1
        else:
            if found is None or growth.gain_per_second > found.gain_per_second:
                found = growth
            low = middle + 1
    return found if found and found.gain_per_second > 0 else None


def _growth_at(problem: Problem, gpu: JudgedGpu, seat: SeatedInstance, sm_percent: int) -> Growth | None:
    """Returns the GPU with the instance at this SM%, if all others there still keep their SLOs."""
    policy, old = problem.policy, seat.resident.instance
    taken_gib = sum(resident.instance.memory_gib for resident in gpu.residents) + sum(
        job.placed.memory_gib for job in gpu.jobs
    )
    room = gpu.type.memory_gib - taken_gib  # for a second copy, while there are two
    after = _replace_on(problem, gpu, replace(old, sm_percent=sm_percent))
    resident = next(resident for resident in after.residents if resident.instance.id == old.id)
    shape = best_batch(resident, policy, room)
    if shape is None or not is_at_most(max(old.memory_gib, shape.memory_gib), room):
        return None
    if any(rule(problem, after) for rule in gpu_rules.RULES):
        return None
    others = _spare_neighbours(after, old, policy)
    if others is None:
        return None
    gain = shape.rate_per_second - seat.shape.rate_per_second
    return Growth(SeatedInstance(resident, shape), others, gain)


def _replace_on(problem: Problem, gpu: JudgedGpu, line: Instance) -> JudgedGpu:
    reader = Reader(problem)
    after = JudgedGpu(gpu.node, gpu.type, gpu.index)
    for resident in gpu.residents:
        there = line if resident.instance.id == line.id else resident.instance
        after.residents.append(reader.resident(there, resident.service, gpu.node))
    after.jobs = [reader.job(resident.placed, gpu.node) for resident in gpu.jobs]
    slow_down(after, problem.policy)
    return after


def _spare_neighbours(gpu: JudgedGpu, line: Instance, policy: Policy) -> tuple[SeatedInstance, ...] | None:
    """Returns the neighbours at their own batches and rates; None if any could no longer carry its rate."""
    found = []
    for resident in gpu.residents:
        if resident.instance.id == line.id:
            continue
        shape = batch_capacity(resident, policy, resident.instance.batch)
        if shape is None or resident.instance.rate_per_second > shape.rate_per_second * LIMIT_FACTOR:
            return None
        found.append(SeatedInstance(resident, shape))
    return tuple(found)
