"""Finds alternatives of an instance, each judged within the plan: other GPUs, types, variants and shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from solvers.latency import latency_at, timeout_for
from solvers.planning.explain.applied import predict_again
from solvers.planning.explain.free_capacity import FreeCapacity, find_free_capacity
from solvers.planning.explain.gpu_groups import GpuGroup, empty_gpu, gpu_group, used_gpu
from solvers.planning.explain.options import Notes, ServiceTerms, ShapeOptions, options
from solvers.planning.judge import JudgedPlan, PlanEdit, Verdict
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem
from solvers.planning.search.promise import keep

MOST_JUDGED = 12  # alternatives of an instance
ENOUGH_SHARE = 1 - 1e-9  # of a rate
EQUAL_SHARE = 1e-9  # of a cost


@dataclass(frozen=True, slots=True)
class Alternative:
    """Instances that carry the rate of another one in its place, and the plan's cost with them."""

    instances: tuple[Instance, ...]
    gpu_type: str
    opens: bool  # GPUs that run nothing else
    adds_per_hour: float  # to the plan's cost; negative: cheaper
    churn: float  # the cost of the change, once
    is_right: bool
    broken: str = ""  # the rule that it breaks

    @property
    def first(self) -> Instance:
        return self.instances[0]


@dataclass(frozen=True, slots=True)
class InstanceAlternatives:
    """The alternatives of an instance, and the GPU types without any."""

    instance: Instance
    alternatives: tuple[Alternative, ...]  # valid ones first, the cheapest first
    unfit: tuple[tuple[str, str], ...]  # GPU type, and why nothing there carries it

    @property
    def runner_up(self) -> Alternative | None:
        """Returns the cheapest valid alternative."""
        return next((alternative for alternative in self.alternatives if alternative.is_right), None)


def find_alternatives(
    problem: Problem, plan: Plan, instance: Instance, judged_plan: JudgedPlan | None = None
) -> InstanceAlternatives:
    """Finds what else could carry this instance's rate while everything else stays as it is."""
    judged_plan = judged_plan or JudgedPlan(problem, plan, keep)
    before = judged_plan.verdict()
    rest = [line for line in plan.instances if line is not instance]
    known = find_free_capacity(problem, rest, plan.jobs)
    service = problem.services[instance.service]
    terms = ServiceTerms(service, problem.policy, problem.limits.get(service.tenant))
    notes = Notes()
    looked = [options(problem, some, terms, notes) for some in _groups(problem, known, instance)]
    drafts = _drafts(looked, instance, terms)
    judged = [_judged(problem, plan, judged_plan, before, instance, draft) for draft in drafts[:MOST_JUDGED]]
    judged.sort(
        key=lambda alternative: (
            not alternative.is_right,
            alternative.adds_per_hour,
            alternative.first.sm_percent,
            alternative.first.place,
        )
    )
    types = {alternative.gpu_type for alternative in judged}
    nodes = {node.gpu_type for node in problem.nodes.values()}
    unfit = tuple((name, _why_unfit(problem, terms, name, instance.rate_per_second)) for name in sorted(nodes - types))
    return InstanceAlternatives(instance, tuple(judged), unfit)


def _groups(problem: Problem, known: FreeCapacity, instance: Instance) -> Iterator[GpuGroup]:
    """Yields the free capacity of the fleet, the GPU of the instance as a group of its own."""
    for some in known.groups:
        others = []
        for free in some.gpus:
            places = tuple(place for place in free.places if place != instance.place)
            if places:
                others.append(replace(free, places=places, node=problem.nodes[places[0][0]]))
        yield gpu_group(others)
    gpu = known.at.get(instance.place)
    yield gpu_group(
        [used_gpu(problem, gpu) if gpu else empty_gpu(problem, problem.nodes[instance.node], [instance.place])]
    )


@dataclass(frozen=True, slots=True)
class _Draft:
    """Instances that would carry the rate, not yet judged."""

    instances: tuple[Instance, ...]
    gpu_type: str
    opens: bool
    price: float  # an estimate, by which the cheapest are judged first


def _drafts(looked: Sequence[ShapeOptions], instance: Instance, terms: ServiceTerms) -> list[_Draft]:
    """Returns the leanest draft by GPU type, variant, and use of empty GPUs, the cheapest first."""
    best: dict[tuple[object, ...], _Draft] = {}
    for option in looked:
        for row in range(len(option.gpu)):
            draft = _draft(option, row, instance, terms)
            if draft is None or _is_same(draft, instance):
                continue
            gpu = option.group.gpus[int(option.gpu[row])]
            key = (draft.gpu_type, draft.instances[0].variant, draft.opens, gpu.places[0] == instance.place)
            if key not in best or _rank(draft) < _rank(best[key]):
                best[key] = draft
    return sorted(best.values(), key=_rank)


def _rank(draft: _Draft) -> tuple[object, ...]:
    first = draft.instances[0]
    return (draft.price, len(draft.instances), first.sm_percent, -first.clock_mhz, first.place)


def _draft(looked: ShapeOptions, row: int, instance: Instance, terms: ServiceTerms) -> _Draft | None:
    """Drafts as few instances as can carry the rate in this way, each with as few SMs as possible."""
    caps, rate = looked.cap[row], instance.rate_per_second
    most = float(caps.max())
    if not most > 0:
        return None
    gpu = looked.group.gpus[int(looked.gpu[row])]
    copies = max(1, ceil(rate * ENOUGH_SHARE / most))
    if copies > len(gpu.places):
        return None
    each = rate / copies
    sm = int(np.argmax(caps >= each * ENOUGH_SHARE))
    way = looked.ways[looked.way[row]]
    batch, exec_ms = int(way.at.batches[looked.by[row, sm]]), float(looked.exec_ms[row, sm])
    judged = exec_ms * (1 + terms.policy.exec_margin)
    service = terms.service
    wait = timeout_for(batch, judged, service.slo_ms, service.percentile, each, service.variation)
    if wait is None:
        return None
    made = tuple(
        replace(
            instance, id=f"{instance.id}/instead-{number}", node=place[0], gpu=place[1], variant=way.profile.variant,
            batch=batch, batch_timeout_ms=wait, sm_percent=sm, memory_gib=way.profile.memory_gib[batch],
            clock_mhz=way.clock_mhz, rate_per_second=each, exec_ms=exec_ms,
            latency_ms=latency_at(batch, judged, each, service.percentile, wait, service.variation),
        )
        for number, place in enumerate(gpu.places[:copies], 1)
    )  # fmt: skip
    whole = gpu.is_empty and terms.policy.pricing == "gpu"
    price = gpu.node.price_per_hour * copies * (1.0 if whole else sm / 100)
    return _Draft(made, gpu.gpu_type.name, gpu.is_empty and made[0].place != instance.place, price)


def _is_same(draft: _Draft, instance: Instance) -> bool:
    """Returns whether draft and instance differ only in share or batch, which the instance explains itself."""
    first = draft.instances[0]
    return (first.place, first.variant) == (instance.place, instance.variant)


def _judged(
    problem: Problem, plan: Plan, judged_plan: JudgedPlan, before: Verdict, instance: Instance, draft: _Draft
) -> Alternative:
    """Judges the plan with the draft in place of the instance, and restores it."""
    places = {instance.place, *(line.place for line in draft.instances)}
    neighbours = [line for line in plan.instances if line.place in places and line is not instance]
    jobs = [job for job in plan.jobs if job.place in places]
    after, after_jobs = predict_again(problem, [*neighbours, *draft.instances], jobs, places)
    there = PlanEdit(
        stop=(*neighbours, instance), start=tuple(after), stop_jobs=tuple(jobs), start_jobs=tuple(after_jobs)
    )
    verdict = judged_plan.apply(there)
    back = PlanEdit(stop=there.start, start=there.stop, stop_jobs=there.start_jobs, start_jobs=there.stop_jobs)
    judged_plan.apply(back)
    old = {(found.where, found.rule) for found in before.violations}
    broken = [found for found in verdict.violations if (found.where, found.rule) not in old]
    changed = sum(problem.nodes[line.node].price_per_hour * line.sm_percent / 100 for line in draft.instances)
    new = {line.id for line in draft.instances}
    adds = verdict.cost.total - before.cost.total
    return Alternative(
        instances=tuple(line for line in after if line.id in new),
        gpu_type=draft.gpu_type,
        opens=draft.opens,
        adds_per_hour=0.0 if abs(adds) <= EQUAL_SHARE * max(1.0, before.cost.total) else adds,
        churn=problem.policy.move_price * changed,
        is_right=not broken,
        broken=str(broken[0]) if broken else "",
    )


def _why_unfit(problem: Problem, terms: ServiceTerms, gpu_type: str, rate: float) -> str:
    """Returns why no GPU of this type could carry the rate, or how much of one it would take."""
    service = terms.service
    if service.gpu_types is not None and gpu_type not in service.gpu_types:
        return "the service does not admit it in gpuTypes"
    profiles = [
        profile for key, profile in problem.profiles.items()
        if key[0] == service.model and key[1] in service.variants and key[2] == gpu_type
    ]  # fmt: skip
    if not profiles:
        return "its model has no profile for it"
    fastest = min(time for profile in profiles for curve in profile.latency_ms.values() for _, time in curve)
    if fastest * (1 + terms.policy.exec_margin) > service.slo_ms:
        return f"even its fastest execution there takes {fastest:.4g} ms, which misses the SLO of {service.slo_ms:g} ms"
    alike = [node for node in problem.nodes.values() if node.gpu_type == gpu_type]
    node = min(alike, key=lambda node: (node.price_per_hour, node.name))
    found = options(problem, gpu_group([empty_gpu(problem, node, [(node.name, 0)])]), terms, Notes())
    enough = (found.cap >= rate * ENOUGH_SHARE).any(axis=0) if found.cap.size else np.zeros(1, dtype=bool)
    if not enough.any():
        return "not even an empty GPU carries the rate alone"
    sm = int(np.argmax(enough))
    worth = node.price_per_hour * (1.0 if service.is_dedicated else sm / 100)
    return f"it would take {sm} % of a GPU, worth {worth:.3g} an hour, but no GPU has that much left"
