"""Judges steps without knowing how they were found: room, capacity, hand-overs, and every possible order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, NodeDesired
from app.control.rollout.rules import RolloutRules
from tests.app.control.rollout.fleets import served

PlacedInstances = dict[str, tuple[str, AssignedInstance]]  # by instance


def placed_instances(desired: Desired) -> PlacedInstances:
    return {instance.id: (node, instance) for node, wanted in desired.items() for instance in wanted.instances}


def faults(before: Desired, after: Desired, need: dict[str, float], rules: RolloutRules) -> Iterator[str]:
    """Yields the faults of a step while it is under way: leaving copies are still there, new copies do not serve."""
    old, new = placed_instances(before), placed_instances(after)
    for place in {(node, instance.gpu) for node, instance in [*old.values(), *new.values()]}:
        yield from _room(place, old, new, after.get(place[0]) or before[place[0]], rules)
    carries = served(before)
    for service, wanted in need.items():
        during = sum(
            min(instance.rate_per_second, new[id_][1].rate_per_second)
            for id_, (_, instance) in old.items()
            if id_ in new and instance.owner == service
        )
        if during < min(wanted, carries.get(service, 0.0)) - 1e-6:
            yield f"{service} carries {during} of {wanted}, and had {carries.get(service)}"
    jobs = Counter(instance.job for _, instance in {**old, **new}.values() if instance.job)
    yield from (f"{job} runs {count} times" for job, count in jobs.items() if count > 1)


def _room(
    place: tuple[str, int], old: PlacedInstances, new: PlacedInstances, node: NodeDesired, rules: RolloutRules
) -> Iterator[str]:
    here_old = {id_: instance for id_, (at, instance) in old.items() if (at, instance.gpu) == place}
    here_new = {id_: instance for id_, (at, instance) in new.items() if (at, instance.gpu) == place}
    if here_old == here_new:
        return
    two = [id_ for id_ in here_old.keys() & here_new.keys() if _is_other(here_old[id_], here_new[id_])]
    two_services = [id_ for id_ in two if here_new[id_].service]
    once = {**here_old, **here_new}
    memory = sum(instance.memory_gib for instance in once.values()) + sum(
        here_old[id_].memory_gib for id_ in two_services
    )
    if memory > rules.memory_gib[place[0]] + 1e-6:
        yield f"{place} holds {memory} GiB"
    once_sm = sum(instance.sm_percent for instance in once.values())
    twice_sm = once_sm + sum(here_old[id_].sm_percent for id_ in two_services)
    if once_sm > 100 or (twice_sm > 100 and node.handover == "strict"):
        yield f"{place} gives {once_sm} SM%, {twice_sm} with hand-overs"
    if len(two_services) > 1:
        yield f"{place} hands over {two_services} at once"
    models = Counter(instance.model for instance in once.values() if instance.service)
    yield from (f"{place} has {count} of {name}" for name, count in models.items() if count > node.same_model_per_gpu)


def _is_other(was: AssignedInstance, shall: AssignedInstance) -> bool:
    return (was.sm_percent, was.memory_gib) != (shall.sm_percent, shall.memory_gib)


def has_an_order(assigned: Desired, target: Desired, rules: RolloutRules) -> bool:
    """Every order of single changes is tried; each is done before the next begins."""
    need = served(target)
    goal = placed_instances(target)
    visited: set[tuple[str, ...]] = set()

    def reach(here: Desired) -> bool:
        now = placed_instances(here)
        if now == goal:
            return True
        mark = tuple(sorted(_mark(now)))
        if mark in visited:
            return False
        visited.add(mark)
        for id_ in sorted(now.keys() | goal.keys()):
            if now.get(id_) == goal.get(id_):
                continue
            there = _with(here, id_, now.get(id_), goal.get(id_))
            if not any(faults(here, there, need, rules)) and reach(there):
                return True
        return False

    return reach(assigned)


def _mark(now: PlacedInstances) -> list[str]:
    return [str(instance) for _, instance in now.values()]


def _with(
    here: Desired, id_: str, was: tuple[str, AssignedInstance] | None, shall: tuple[str, AssignedInstance] | None
) -> Desired:
    node = (shall or was)[0]  # type: ignore
    lines = [instance for instance in here[node].instances if instance.id != id_] + ([shall[1]] if shall else [])
    return {**here, node: replace(here[node], instances=tuple(sorted(lines, key=lambda instance: instance.id)))}
