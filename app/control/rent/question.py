"""Asks the joint question with nodes that could be rented, at the rates to come: which are used, what they save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.control.domain.ports import PlanSolver
from app.control.domain.specs import Spec, node_price
from app.manifests.model import WrittenSpec
from solvers.planning.indexes import gpu_indexes
from solvers.planning.plan import Plan
from solvers.planning.problem import Node, Problem
from solvers.renting import NO_RECLAIMS, ReclaimHistory, RentalTerms, price_reclaims

HAND_OVER_SECONDS = 120.0  # the usual notice, in which a node serves ever less
MOST_AT_ONCE = 8  # nodes of a pool in one question
SOLVER_SECONDS, SOLVER_STEPS = 3.0, 12


@dataclass(frozen=True, slots=True)
class RentalPool:
    """A declared pool with the price of its nodes."""

    name: str
    spec: WrittenSpec
    terms: RentalTerms
    reclaims: ReclaimHistory = NO_RECLAIMS

    @property
    def is_spot(self) -> bool:
        return self.spec.get("purchase") == "spot"

    @property
    def reclaims_per_hour(self) -> float:
        """Returns what reclaims of a node are expected to cost an hour; no bill has it, so only choices count it."""
        if not self.is_spot:
            return 0.0
        return price_reclaims(self.reclaims, self.terms.price_per_hour, self.terms.start_seconds + HAND_OVER_SECONDS)

    @property
    def least(self) -> int:
        return int(self.spec.get("min", 0))

    @property
    def most(self) -> int:
        return int(self.spec["max"])

    def node_spec(self) -> dict[str, object]:
        """Returns the spec of its nodes' manifests."""
        kept = ("gpuType", "cpuCores", "memoryGib", "region", "purchase", "templates")
        shared = {name: self.spec[name] for name in kept if name in self.spec}
        return {**shared, "gpus": self.spec["gpusPerNode"], "pool": self.name}

    def candidate(self, name: str, *, is_paid: bool = False) -> Node:
        """Returns a node of it as plans would see it, once it has joined."""
        spec: Spec = self.spec
        templates = spec.get("templates")
        return Node(
            name, str(spec["gpuType"]), gpu_indexes(int(spec["gpusPerNode"])), spec["cpuCores"], spec["memoryGib"],
            (self.terms.price_per_hour + self.reclaims_per_hour) / int(spec["gpusPerNode"]),
            purchase=spec.get("purchase", "onDemand"),
            region=spec.get("region", "default"), templates=None if templates is None else frozenset(templates),
            pricing="paid" if is_paid else "node",
        )  # fmt: skip


def make_pool(name: str, spec: WrittenSpec, gpu_type: WrittenSpec) -> RentalPool:
    """Returns the pool; its price is that of its GpuType for its region and purchase."""
    price = node_price(spec, gpu_type) * int(spec["gpusPerNode"])
    terms = RentalTerms(price, float(spec.get("startSeconds", 300)), 60 * float(spec.get("minimumMinutes", 60)))
    return RentalPool(name, spec, terms)


@dataclass(frozen=True, slots=True)
class RentNeed:
    """The nodes there that are needed as long as nothing is ordered, the nodes to be ordered by pool, what these save.

    Whatever would take the place of a node has to stand there before that one is needed no longer.
    """

    used: frozenset[str]
    wanted: Mapping[str, int]
    saving_per_hour: float
    uses_coming: bool = False  # something is planned on nodes that are on their way


@dataclass(frozen=True, slots=True)
class PoolOffer:
    """How many nodes of a pool are on their way, and how many more it may order."""

    pool: RentalPool
    coming: int
    room: int


def pose_renting(
    problem: Problem, offers: Sequence[PoolOffer], rates: Mapping[str, float], returnable: Collection[str]
) -> tuple[Problem, dict[str, str]]:
    """Returns the problem at these rates with the nodes that pools offer, and the pool of each.

    Only money that can be avoided counts: nodes that are there cost nothing unless they can be given back, nor
    do nodes on their way. Whichever GPUs of a rented node are used, all of it is paid.
    """
    higher = {
        name: replace(service, rate_per_second=max(service.rate_per_second, rates.get(name, 0.0)))
        for name, service in problem.services.items()
    }
    nodes = {
        name: replace(node, pricing="node" if name in returnable else "paid") for name, node in problem.nodes.items()
    }
    pool_of = dict[str, str]()
    for offer in offers:
        pool = offer.pool
        for number in range(1, min(offer.coming + offer.room, MOST_AT_ONCE) + 1):
            name = f"rent-{pool.name}-{number}"
            if pool.spec["gpuType"] in problem.gpu_types and name not in nodes:
                nodes[name] = pool.candidate(name, is_paid=number <= offer.coming)
                pool_of[name] = pool.name
    policy = replace(problem.policy, pricing="gpu")
    return replace(problem, services=higher, nodes=nodes, policy=policy), pool_of


def ask_renting(
    solver: PlanSolver, question: Problem, pool_of: Mapping[str, str], standing: Mapping[str, str]
) -> RentNeed | None:
    """Returns what the best plan uses; None without an answer. What it orders saves what the plan without costs more.

    Nodes on their way are paid already, so both plans have them. `standing` names the pools of nodes that have joined.
    """
    answer = solver.solve(question, seconds=SOLVER_SECONDS, work=SOLVER_STEPS)
    if answer.plan is None:
        return None
    orderable = {name for name in pool_of if question.nodes[name].pricing != "paid"}
    used = list_used(answer.plan)
    if used.isdisjoint(orderable):
        return _find_need(answer.plan, pool_of, {}, 0.0)
    wanted = _count_wanted(question, pool_of, standing, used)
    there = {name: node for name, node in question.nodes.items() if name not in orderable}
    if not there:  # all that is served is served by what is ordered
        lost = question.policy.unserved_price * sum(s.rate_per_second for s in question.services.values())
        return RentNeed(frozenset(), wanted, lost - _price(answer.plan))
    without = solver.solve(replace(question, nodes=there), seconds=SOLVER_SECONDS, work=SOLVER_STEPS)
    if without.plan is None:
        return None
    return _find_need(without.plan, pool_of, wanted, _price(without.plan) - _price(answer.plan))


def _count_wanted(
    question: Problem, pool_of: Mapping[str, str], standing: Mapping[str, str], used: frozenset[str]
) -> Mapping[str, int]:
    """Returns how many nodes of each pool are to be ordered: those used beyond as many of it that stand there unused.

    Nodes that are alike cost the same, so that the plan takes any of them; one that stands there needs no order.
    """
    there = question.nodes.keys() & standing.keys() - used
    spare = Counter(_kind(question.nodes[name], standing[name]) for name in there)
    wanted = Counter[str]()
    for name in sorted(used & pool_of.keys()):
        kind = _kind(question.nodes[name], pool_of[name])
        if question.nodes[name].pricing == "paid":  # it is on its way
            continue
        if spare[kind] > 0:
            spare[kind] -= 1
        else:
            wanted[pool_of[name]] += 1
    return wanted


def _kind(node: Node, pool: str) -> tuple[object, ...]:
    """Returns what nodes of a pool have in common, unless its spec has changed or some of their GPUs cannot be used."""
    return (pool, node.gpu_type, node.gpus, node.cpu_cores, node.host_memory_gib, node.region, node.purchase)


def _find_need(without: Plan, pool_of: Mapping[str, str], wanted: Mapping[str, int], saving: float) -> RentNeed:
    used = list_used(without)
    return RentNeed(used - pool_of.keys(), wanted, saving, uses_coming=not used.isdisjoint(pool_of))


def list_used(plan: Plan) -> frozenset[str]:
    """Returns the nodes on which the plan has an instance or a job."""
    return frozenset({line.node for line in plan.instances} | {job.node for job in plan.jobs})


def _price(plan: Plan) -> float:
    return plan.certificate.cost.total if plan.certificate else 0.0
