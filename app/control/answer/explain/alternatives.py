"""Finds alternatives of an instance, each judged within the plan: other GPUs, types, variants and shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from solvers.planning.explain.ground import Ground, Notes, ServiceTerms
from solvers.planning.fleet.predictions import predict_again
from solvers.planning.fleet.room_shapes import RoomShapes
from solvers.planning.fleet.room_view import RoomView
from solvers.planning.fleet.rooms import FleetRooms
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
    ground = Ground.of(FleetRooms(problem, rest, plan.jobs))
    service = problem.services[instance.service]
    terms = ServiceTerms(service, problem.policy, problem.limits.get(service.tenant))
    notes = Notes()
    looked = [ground.find_shapes(view, terms, notes) for view in _list_views(ground, instance)]
    drafts = _drafts(looked, instance, terms)
    judged = [_judge(problem, plan, judged_plan, before, instance, draft) for draft in drafts[:MOST_JUDGED]]
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
    unfit = tuple((name, _why_unfit(ground, terms, name, instance.rate_per_second)) for name in sorted(nodes - types))
    return InstanceAlternatives(instance, tuple(judged), unfit)


def _list_views(ground: Ground, instance: Instance) -> Iterator[RoomView]:
    """Yields the GPUs that have room, the one of the instance in a view of its own."""
    for view in ground.views:
        others = [tuple(place for place in places if place != instance.place) for places in view.places]
        some = view.pick(np.array([row for row, places in enumerate(others) if places], dtype=np.int64))
        nodes = ground.problem.nodes
        left = tuple(places for places in others if places)
        yield replace(some, places=left, nodes=tuple(nodes[places[0][0]] for places in left))
    yield ground.rooms.view([[ground.rooms.numbers[instance.place]]])


@dataclass(frozen=True, slots=True)
class _Draft:
    """Instances that would carry the rate, not yet judged."""

    instances: tuple[Instance, ...]
    gpu_type: str
    opens: bool
    price: float  # an estimate, by which the cheapest are judged first


def _drafts(looked: Sequence[RoomShapes], instance: Instance, terms: ServiceTerms) -> list[_Draft]:
    """Returns the leanest draft by GPU type, variant, and use of empty GPUs, the cheapest first."""
    best: dict[tuple[object, ...], _Draft] = {}
    for shapes in looked:
        for row in range(len(shapes.gpu)):
            draft = _draft(shapes, row, instance, terms)
            if draft is None or _is_same(draft, instance):
                continue
            first = draft.instances[0]
            key = (draft.gpu_type, first.variant, draft.opens, first.place == instance.place)
            if key not in best or _rank(draft) < _rank(best[key]):
                best[key] = draft
    return sorted(best.values(), key=_rank)


def _rank(draft: _Draft) -> tuple[object, ...]:
    first = draft.instances[0]
    return (draft.price, len(draft.instances), first.sm_percent, -first.clock_mhz, first.place)


def _draft(shapes: RoomShapes, row: int, instance: Instance, terms: ServiceTerms) -> _Draft | None:
    """Drafts as few instances as can carry the rate in this way, each with as few SMs as possible."""
    caps, rate = shapes.cap[row], instance.rate_per_second
    most = float(caps.max())
    if not most > 0:
        return None
    view, gpu = shapes.view, int(shapes.gpu[row])
    copies = max(1, ceil(rate * ENOUGH_SHARE / most))
    if copies > len(view.places[gpu]):
        return None
    sm = int(np.argmax(caps >= rate / copies * ENOUGH_SHARE))
    made = []
    for number, place in enumerate(view.places[gpu][:copies], 1):
        name = f"{instance.id}/instead-{number}"
        copy = shapes.start(name, place, row, sm, rate / copies, terms.service, terms.policy)
        if copy is None:
            return None
        made.append(copy)
    is_idle, node = view.is_idle[gpu], view.nodes[gpu]
    price = node.price_per_hour * copies * (1.0 if is_idle and terms.policy.pricing == "gpu" else sm / 100)
    return _Draft(tuple(made), node.gpu_type, is_idle and made[0].place != instance.place, price)


def _is_same(draft: _Draft, instance: Instance) -> bool:
    """Returns whether draft and instance differ only in share or batch, which the instance explains itself."""
    first = draft.instances[0]
    return (first.place, first.variant) == (instance.place, instance.variant)


def _judge(
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


def _why_unfit(ground: Ground, terms: ServiceTerms, gpu_type: str, rate: float) -> str:
    """Returns why no GPU of this type could carry the rate, or how much of one it would take."""
    service, problem = terms.service, ground.problem
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
    place = (node.name, node.gpus[0])
    found = ground.find_shapes(RoomView.idle([(node, problem.type_at(place), [place])]), terms, Notes())
    enough = (found.cap >= rate * ENOUGH_SHARE).any(axis=0)
    if not enough.any():
        return "not even an empty GPU carries the rate alone"
    sm = int(np.argmax(enough))
    worth = node.price_per_hour * (1.0 if service.is_dedicated else sm / 100)
    return f"it would take {sm} % of a GPU, worth {worth:.3g} an hour, but no GPU has that much left"
