"""Makes the fleet that a division would leave: nodes with MIG devices, their type, and the speeds expected on them.

A declared Profile on the devices' GpuType counts. Where there is none, it is derived: a device with a part of the SMs
and of the memory's bandwidth is taken to be as fast as the smaller part of the whole GPU's SMs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf

from app.control.answer.division.layouts import DivisibleFleet, DivisibleNodes, MigLayout
from solvers.planning.judge.billing import whole_price
from solvers.planning.judge.readings import value_at
from solvers.planning.plan import Plan
from solvers.planning.problem import Curve, Demand, GpuType, Instance, Node, Problem, Profile

ROUNDING = 1e-9
MOST_CANDIDATES = 256  # of nodes or GPUs that are alike, in each way


def divide_fleet(problem: Problem, division: Mapping[str, MigLayout]) -> Problem:
    """Returns the problem with these nodes divided; the copies that run on them have left."""
    if not division:
        return problem
    nodes = {
        name: divide_node(node, division[name]) if name in division else node for name, node in problem.nodes.items()
    }
    state = problem.state
    if state is not None:
        state = replace(state, running=tuple(line for line in state.running if line.node not in division))
    return replace(_add_devices(problem, division.values()), nodes=nodes, state=state)


def divide_node(node: Node, layout: MigLayout) -> Node:
    """Returns the node with MIG devices for GPUs. A divided GPU is paid whole while a service runs on any device."""
    most = layout.profile.most
    pricing = "node" if node.pricing == "gpu" and node.gpu_count == 1 else node.pricing
    return replace(
        node, gpu_type=layout.gpu_type, gpus=tuple(range(node.gpu_count * most)), pricing=pricing,
        price_per_hour=node.price_per_hour / most, linked_gpus=0,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node that stands for one that could be divided, or for one GPU of it where GPUs are paid by themselves."""

    group: DivisibleNodes
    layout: MigLayout
    gpus: int  # that it divides


@dataclass(frozen=True, slots=True)
class RelaxedFleet:
    """The fleet with every node that could be divided in all ways at once: no division of it can cost less."""

    problem: Problem
    candidates: Mapping[str, CandidateNode]  # the nodes that were added
    is_complete: bool  # False: of nodes that are alike, not all could be added

    def seat(self, plan: Plan) -> tuple[dict[str, MigLayout], Plan | None]:
        """Returns the division that a plan asks for, and the plan on it; without a plan where nodes do not suffice."""
        used = Counter([line.node for line in plan.instances] + [job.node for job in plan.jobs])
        taken = {name for name in used if name not in self.candidates}
        seats: dict[str, tuple[str, int]] = {}  # of each added node: the node, and the first of its devices there
        division: dict[str, MigLayout] = {}
        rooms: dict[tuple[DivisibleNodes, MigLayout], tuple[str, int]] = {}  # a node with GPUs that are left to seat
        for name in sorted(used.keys() & self.candidates.keys(), key=lambda name: (-used[name], name)):
            candidate = self.candidates[name]
            kind = candidate.group, candidate.layout
            if kind not in rooms:
                free = next((node for node in candidate.group.nodes if node not in taken), None)
                if free is None:
                    continue
                taken.add(free)
                division[free] = candidate.layout
                rooms[kind] = free, 0
            node, gpu = rooms.pop(kind)
            seats[name] = node, gpu * candidate.layout.profile.most
            if gpu + candidate.gpus < self.problem.nodes[node].gpu_count:
                rooms[kind] = node, gpu + candidate.gpus
        if not used.keys() & self.candidates.keys() <= seats.keys():
            return division, None
        return division, replace(plan, instances=tuple(_seat_line(line, seats) for line in plan.instances))


def _seat_line(line: Instance, seats: Mapping[str, tuple[str, int]]) -> Instance:
    if line.node not in seats:
        return line
    node, first = seats[line.node]
    return replace(line, node=node, gpu=first + line.gpu)


def relax_fleet(problem: Problem, fleet: DivisibleFleet, cost: float) -> RelaxedFleet:
    """Returns the fleet with the divided nodes beside the whole ones, as many as can be used at less than this cost."""
    added: dict[str, Node] = {}
    candidates: dict[str, CandidateNode] = {}
    is_complete = True
    for group in fleet.groups:
        for layout in group.layouts:
            node = problem.nodes[group.nodes[0]]
            parts = node.gpu_count if node.pricing == "gpu" else 1
            one = replace(node, gpus=node.gpus[: node.gpu_count // parts])
            useful = min(len(group.nodes) * parts, _count_affordable(problem, one, cost))
            is_complete &= useful <= MOST_CANDIDATES
            for number in range(int(min(useful, MOST_CANDIDATES))):
                new = f"{node.name}~{number}~{layout.profile.name}"
                added[new] = replace(divide_node(one, layout), name=new)
                candidates[new] = CandidateNode(group, layout, one.gpu_count)
    whole = _add_devices(problem, [entry.layout for entry in candidates.values()])
    budget_w = problem.policy.power_budget_w
    if budget_w is not None:  # nodes that are not there draw nothing
        budget_w += sum(whole.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in added.values())
    policy = replace(problem.policy, power_budget_w=budget_w)
    return RelaxedFleet(replace(whole, nodes={**problem.nodes, **added}, policy=policy), candidates, is_complete)


def _count_affordable(problem: Problem, node: Node, cost: float) -> float:
    """Returns how many such nodes a plan of this cost can pay; any number where their price is not paid whole."""
    policy = problem.policy
    if policy.pricing == "share" or policy.money_weight <= 0:
        return inf
    return floor(cost / (whole_price(node) * policy.money_weight) + ROUNDING)


def price_idle_devices(problem: Problem, plan: Plan, division: Mapping[str, MigLayout]) -> float:
    """Returns what devices cost an hour that no service uses, of GPUs that are paid whole for the others' sake.

    Plans pay them where a node is paid whole. Where GPUs are paid, plans pay each device, but the bill is for the GPU.
    """
    policy = problem.policy
    if policy.pricing == "share":
        return 0.0
    used = Counter(node for node, _ in {place for line in plan.instances for place in line.places})
    found = 0.0
    for name, layout in division.items():
        node, kind = problem.nodes[name], problem.gpu_types[layout.gpu_type]
        idle = ceil(used[name] / layout.profile.most) * layout.profile.most - used[name]
        price = node.price_per_hour * policy.money_weight if node.pricing == "gpu" else 0.0
        found += idle * (price + policy.energy_price_per_kwh * kind.idle_w / 1000)
    return found


def _add_devices(problem: Problem, layouts: Iterable[MigLayout]) -> Problem:
    """Returns the problem with the devices' types and the profiles on them; what is declared stays as it is."""
    types, profiles = dict(problem.gpu_types), dict(problem.profiles)
    for layout in {layout.gpu_type: layout for layout in layouts}.values():
        types.setdefault(layout.gpu_type, divide_type(problem.gpu_types[layout.whole_type], layout))
        for profile in problem.profiles.values():
            if profile.gpu_type == layout.whole_type and (derived := derive_profile(profile, layout)):
                profiles.setdefault(derived.key, derived)
    return replace(problem, gpu_types=types, profiles=profiles)


def divide_type(kind: GpuType, layout: MigLayout) -> GpuType:
    """Returns the type of the devices, with an equal part of the watts each, at the highest clock."""
    most = layout.profile.most
    return GpuType(
        layout.gpu_type, layout.profile.memory_gib, kind.idle_w / most, kind.max_w / most, (kind.top_clock_mhz,)
    )


def derive_profile(profile: Profile, layout: MigLayout) -> Profile | None:
    """Returns the profile that is expected on a device; None where none of its batches was profiled at so few SMs."""
    share = layout.speed_share
    if profile.iteration:
        return None  # a language model's server takes whole GPUs
    latency_ms = {
        batch: narrowed
        for batch, curve in profile.latency_ms.items()
        if profile.memory_gib[batch] <= layout.profile.memory_gib and (narrowed := _narrow(curve, share))
    }
    if not latency_ms:
        return None
    demand = profile.demand
    power_w = tuple((at, value_at(demand.power_w, at * share)) for at in _list_percents(demand.power_w, share))
    return Profile(
        profile.model, profile.variant, layout.gpu_type, latency_ms,
        {batch: profile.memory_gib[batch] for batch in latency_ms},
        _put_watts(demand, power_w), profile.start_seconds,
    )  # fmt: skip


def _put_watts(demand: Demand, power_w: Curve) -> Demand:
    return replace(demand, power_w=power_w or ((100, demand.power_w[0][1]),))


def _narrow(curve: Curve, share: float) -> Curve:
    """Returns a curve over the SM% of a device; nothing where it begins beyond the device's SMs."""
    return tuple((at, value_at(curve, at * share)) for at in _list_percents(curve, share))


def _list_percents(curve: Curve, share: float) -> list[int]:
    """Returns the whole SM% of a device at and beside the curve's points, so that all between are as on the curve."""
    least = ceil(curve[0][0] / share - ROUNDING)
    beside: Iterator[int] = (side(percent / share) for percent, _ in curve for side in (floor, ceil))
    return sorted({at for at in (least, *beside, 100) if least <= at <= 100})
