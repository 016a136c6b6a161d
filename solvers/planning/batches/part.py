"""Solves the part of a fleet that a batch changes: a few GPUs, and the rates that nothing else can carry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from solvers.planning.drafting.drafts import SearchDraft, drafts, prepare
from solvers.planning.judge.billing import is_billed_whole, whole_price
from solvers.planning.problem import GpuType, Instance, Limit, Node, Problem, Profile, ProfileKey, RunningState, Service
from solvers.planning.replan.kernels import capacities
from solvers.planning.replan.match import match_running
from solvers.planning.replan.running_board import RunningBoard
from solvers.planning.search.realise import instances
from solvers.planning.search.tables import tables

CLOSE_SHARE = 1e-7  # of a rate: a smaller lack is rounding
PAID_SHARE = 1e-3  # of its price costs a GPU whose node is paid anyway


def solve_part(problem: Problem, work: int) -> list[Instance] | None:
    """Returns what the empty GPUs of a part are to run at the least cost; None if no plan is found.

    It may carry less than is needed: the caller checks all instances of each service.
    """
    if not problem.services:
        return []
    t = tables(problem)
    best: SearchDraft | None = None
    for draft in drafts(prepare(t), 0):
        if draft.method and (best is None or draft.cost < best.cost):
            best = draft
        if draft.work >= work:
            break
    if best is None:
        return None
    placed, _ = instances(t, best.placed)
    return match_running(t, placed)


def problem_of(d: RunningBoard, gpus: Sequence[int], services: Collection[int], running: Sequence[Instance]) -> Problem:
    """Returns the problem of these GPUs, which are empty on the board, and of the rates that nothing else can carry.

    `services` are those that ran there or are to move there, as `running`. What the others of their instances can carry
    is not needed.
    """
    whole = d.t.problem
    nodes = dict(_nodes(d, gpus))
    wanted = {service.name: service for service in _services(d, services)}
    types: dict[str, GpuType] = {node.gpu_type: whole.type_of(node.name) for node in nodes.values()}
    models = {service.model for service in wanted.values()}
    profiles: dict[ProfileKey, Profile] = {
        key: profile for key, profile in whole.profiles.items() if key[0] in models and key[2] in types
    }
    state = RunningState(None, tuple(line for line in running if line.service in wanted and line.node in nodes))
    return replace(
        whole, gpu_types=types, nodes=nodes, profiles=profiles, services=wanted, jobs={}, state=state, spare={},
        limits=_limits(d, wanted.values()),
    )  # fmt: skip


def _nodes(d: RunningBoard, gpus: Sequence[int]) -> Iterator[tuple[str, Node]]:
    """Yields the nodes with these GPUs alone, and with the cores and host memory that others leave."""
    whole, indexes = d.t.problem, defaultdict(list)
    for node, index in sorted(d.place_of[gpu] for gpu in gpus):
        indexes[node].append(index)
    for gpu in gpus:
        name, row = d.place_of[gpu][0], d.b.node[gpu]
        if name in indexes:
            part = replace(
                whole.nodes[name],
                gpus=tuple(indexes.pop(name)),
                cpu_cores=max(0.0, float(d.b.cpu[row])),
                host_memory_gib=max(0.0, float(d.b.host[row])),
            )
            yield name, _bill(d, part) if is_billed_whole(whole.nodes[name], whole.policy) else part


def _bill(d: RunningBoard, node: Node) -> Node:
    """Returns a part of a node that is billed whole at what using it adds: all of its price, or next to nothing.

    It adds nothing where services run on its other GPUs. The judge then prices the plan as it is.
    """
    whole = d.t.problem.nodes[node.name]
    others = [d.number_of[node.name, index] for index in whole.gpus if index not in node.gpus]
    if d.b.count[others].any():
        return replace(node, pricing="gpu", price_per_hour=whole.price_per_hour * PAID_SHARE)
    return replace(node, price_per_hour=whole_price(whole) / node.gpu_count)


def _services(d: RunningBoard, services: Collection[int]) -> Iterator[Service]:
    """Yields the services whose other instances are too few, or cannot carry all of their rates."""
    t = d.t
    for number in services:
        own, slots = d.seats(number)
        now, best, by = np.zeros(len(own)), np.zeros(len(own)), np.zeros(len(own), dtype=np.int64)
        capacities(d.w, d.b, d.x, own, slots, now, best, by)
        rate, least = float(d.w.rate[number]), int(t.min_instances[number])
        need, more = rate - float(now.sum()), least - len(own)
        if more > 0:
            need = max(need, rate / (2 * least))  # each of the least must carry half an even share
        if more > 0 or need > CLOSE_SHARE * rate:
            given = t.problem.services[t.services[number]]
            yield replace(given, rate_per_second=need, min_instances=max(1, more))


def _limits(d: RunningBoard, services: Collection[Service]) -> dict[str, Limit]:
    """Returns what other instances leave of the limits of these services' tenants."""
    tenants = sorted({service.tenant for service in d.t.problem.services.values()})
    found = {}
    for tenant in {service.tenant for service in services} & d.t.problem.limits.keys():
        number, limit = tenants.index(tenant), d.t.problem.limits[tenant]
        found[tenant] = Limit(
            None if limit.gpus is None else max(0.0, float(d.x.gpus_left[number])),
            None if limit.price_per_hour is None else max(0.0, float(d.x.price_left[number])),
            limit.source,
        )
    return found
