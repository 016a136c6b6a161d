"""Tells what the others of a plan leave to one service: GPUs with room, nodes, tenants' limits and watts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from solvers.planning.explain.meter import Meter
from solvers.planning.fleet.commons import Commons
from solvers.planning.fleet.offers import read_offers
from solvers.planning.fleet.room_shapes import RoomShapes
from solvers.planning.fleet.room_view import RoomView, is_borne, mean_w
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import JudgedGpu
from solvers.planning.judge.tenants import shares_of
from solvers.planning.problem import Limit, Node, Place, Policy, Problem, Service

MOST_SHARED_GPUS = 32  # examined of a kind, those with most SM% left; idle ones count as one
MOST_LOOKED_AT_GPUS = 512  # of all kinds


class ServiceTerms(NamedTuple):
    """A service, the policy and its tenant's limit: all that a relaxation may change."""

    service: Service
    policy: Policy
    limit: Limit | None  # of its tenant


@dataclass
class Notes:
    """The shapes found under terms, to use again, and the work spent on them."""

    meter: Meter = field(default_factory=Meter)
    shapes: dict[tuple[object, ...], RoomShapes] = field(default_factory=dict)


@dataclass(frozen=True)
class Ground:
    """What a plan leaves: the account of the fleet, what is shared beyond GPUs, and the GPUs that are looked at."""

    rooms: FleetRooms
    commons: Commons
    views: tuple[RoomView, ...]
    is_partly_seen: bool = False  # GPUs with room were left out

    @classmethod
    def of(cls, rooms: FleetRooms) -> Ground:
        """Returns the GPUs with SM% left, the roomiest few of each kind, and all idle ones."""
        rows, is_partly_seen = _list_rows(rooms)
        return cls(rooms, rooms.commons, (rooms.view(rows),), is_partly_seen)

    @property
    def problem(self) -> Problem:
        return self.rooms.problem

    def find_shapes(self, view: RoomView, terms: ServiceTerms, notes: Notes) -> RoomShapes:
        """Returns every shape that the service's SLO, memory, watts and neighbours allow on a view's GPUs."""
        service, policy = terms.service, terms.policy
        key = (  # views of the same watts show the same GPUs, of which one may have more
            id(view.watts), service.slo_ms, service.percentile, service.variants, service.gpu_types, service.cells,
            service.used_load, service.variation, service.is_dedicated,
            policy.same_model_per_gpu, policy.clients_per_gpu,
        )  # fmt: skip
        known = notes.shapes.get(key)
        if known is None or known.view.watts is not view.watts:
            is_open, offers = self.rooms.admits(service, policy), read_offers(self.problem)
            numbers = enumerate(zip(view.is_idle, view.numbers.tolist(), strict=True))
            rows = [row for row, (is_idle, number) in numbers if is_idle or is_open[number]]
            known = notes.shapes[key] = offers.find_room_shapes(service, view, rows, notes.meter.spend)
        return known if known.view is view else replace(known, view=view)

    def without(self, places: set[Place]) -> Ground:
        """Returns the same without some GPUs on which something runs."""
        return replace(self, views=tuple(view.without(places) for view in self.views))

    def after(self, name: str) -> Ground | None:
        """Returns what is left once a service, whose GPUs are not looked at yet, has left; None if others cannot."""
        rooms, numbers = remove_service(self.rooms, name)
        for number in numbers:
            gpu = rooms.gpus.get(rooms.places[number])
            if gpu and not is_borne(self.problem, gpu, int(rooms.free_sm[number])):
                return None
        views = (rooms.view([[number] for number in numbers]), *self.views)
        return replace(self, rooms=rooms, commons=rooms.commons, views=views)

    def add_nodes(self, fresh: Sequence[Node], added: RoomView) -> Ground:
        """Returns the same with more nodes, which are alike and have one GPU each; the view shows these GPUs."""
        idle_w = added.types[0].idle_w * len(fresh)
        return replace(self, commons=self.commons.grow(fresh, idle_w), views=(*self.views, added))

    def lift_caps(self) -> Ground:
        """Returns the same as if each GPU could draw all the watts of its type."""
        types = self.problem.gpu_types
        lifted = []
        for view in self.views:
            full = tuple(types[node.gpu_type] for node in view.nodes)
            more_w = [kind.max_w - was.max_w for kind, was in zip(full, view.types, strict=True)]
            lifted.append(replace(view, types=full, watts=view.watts + np.array(more_w)))
        return replace(self, views=tuple(lifted))


def remove_service(rooms: FleetRooms, name: str) -> tuple[FleetRooms, list[int]]:
    """Returns the rooms once all instances of a service have left, and the numbers of the GPUs that they were on."""
    problem, rest = rooms.problem, rooms.copy()
    service = problem.services[name]
    numbers = sorted(np.flatnonzero(rooms.of_service[name]).tolist(), key=rooms.places.__getitem__)
    here = [rooms.gpus[rooms.places[number]] for number in numbers]
    stay = [line.instance for gpu in here for line in gpu.residents if line.instance.service != name]
    after = gpus_with(problem, stay, [job.placed for gpu in here for job in gpu.jobs])
    for number, before in zip(numbers, here, strict=True):
        place, node = rooms.places[number], int(rooms.node_numbers[number])
        gone = [line for line in before.residents if line.instance.service == name]
        for line in gone:
            rest.commons.use_node(node, -line.demand.cpu_cores, -line.demand.host_memory_gib)
        rest.commons.charge(service.tenant, -_share(before, service), before.node.price_per_hour)
        gpu = after.get(place) or JudgedGpu(before.node, before.type, before.index)
        rest.count(number, gpu)
        rest.models[service.model][number] -= len(gone)
        rest.of_service[name][number] = 0
        rest.closed[number] = any(problem.services[line.instance.service].is_dedicated for line in gpu.residents)
        if problem.policy.power_budget_w is not None:
            rest.commons.drawn_w += mean_w(gpu) - mean_w(before)
        if place in after:
            rest.gpus[place] = gpu
        else:
            del rest.gpus[place]
    return rest, numbers


def _share(gpu: JudgedGpu, service: Service) -> float:
    """Returns the share of a GPU that a service takes of its tenant's limit."""
    mine = [line for line in gpu.residents if line.service is service]
    return shares_of(replace(gpu, residents=mine))[service.tenant]


def _list_rows(rooms: FleetRooms) -> tuple[list[list[int]], bool]:
    """Returns the GPUs to look at, idle ones of one kind together, and whether some with room are left out."""
    nodes = rooms.problem.nodes
    kinds = [
        (pool, nodes[name].cell) for pool, (name, _) in zip(rooms.pool_numbers.tolist(), rooms.places, strict=True)
    ]
    used, rows, is_partly_seen = rooms.clients.astype(bool).tolist(), list[list[int]](), False
    counts: Counter[tuple[int, str]] = Counter()
    for _, _, number in sorted(
        (-sm, rooms.places[number], number)
        for number, sm in enumerate(rooms.free_sm.tolist())
        if used[number] and sm > 0
    ):
        counts[kinds[number]] += 1
        if counts[kinds[number]] <= MOST_SHARED_GPUS and len(rows) < MOST_LOOKED_AT_GPUS:
            rows.append([number])
        else:
            is_partly_seen = True
    idle: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number in sorted((number for number, is_used in enumerate(used) if not is_used), key=rooms.places.__getitem__):
        idle[kinds[number]].append(number)
    return [*rows, *idle.values()], is_partly_seen
