"""Plans of those who do not plan online: a static fleet for the peak, and servers by throughput for the last rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil

import numpy as np

from lab.llm_fleet.catalogue import PROMPT_PARTS
from lab.rag.catalogue import variant_of
from lab.rag.trace import Floats, Integers, RagRequests
from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.served import serve_stream
from solvers.llm.streams import TokenStream
from solvers.planning.judge.whole import MOST_SEQUENCES, iterations, kv_tokens
from solvers.planning.language import TokenPromise
from solvers.planning.plan import Plan
from solvers.planning.problem import GpuType, Instance, Node, Problem, Service
from solvers.planning.solve import SolveBudget, find

FACTOR_STEP, LEAST_FACTOR, MOST_FACTOR = 0.05, 0.3, 2.0  # of the peak, in the search for a static fleet
CENT = 0.01
PLAN_WORK = 2  # counts of few shapes, solved to the end
SATURATED_REQUESTS = 2000
SATURATED_PER_SECOND = 1000.0
ALONE_SECONDS = 600.0  # between two requests that have the server to themselves


@dataclass(frozen=True, slots=True)
class ServerShape:
    """A server of a model on so many whole GPUs of a type."""

    variant: str
    gpu: GpuType
    degree: int
    cost: IterationCost
    limits: BatchingLimits
    price_per_hour: float


@dataclass(frozen=True, slots=True)
class KeptShares:
    """The shares of requests that keep the promise of the first token, that of the pace, and both."""

    ttft: float
    tpot: float
    both: float


def static_plans(problem: Problem, service: Service, peak_rate: float) -> Iterator[tuple[float, Plan]]:
    """Yields the joint planner's plans for rising factors of the peak rate, each that costs more than those before."""
    alone = replace(problem, services={service.name: service})
    cost = 0.0
    for number in range(round((MOST_FACTOR - LEAST_FACTOR) / FACTOR_STEP) + 1):
        factor = round(LEAST_FACTOR + number * FACTOR_STEP, 2)
        plan = find(
            alone.change_rates({service.name: factor * peak_rate}), SolveBudget(None, PLAN_WORK), alone=True
        ).plan
        assert plan.certificate
        if plan.certificate.cost.resource > cost + CENT and not plan.unserved:
            cost = plan.certificate.cost.resource
            yield factor, plan


def shapes(problem: Problem, service: Service) -> list[ServerShape]:
    """Returns a server of each GPU type, degree and part of a prompt that holds the longest request."""
    found = []
    prices = {node.gpu_type: node.price_per_hour for node in problem.nodes.values()}
    sizes = {variant.name: variant.llm for variant in problem.models[service.model]}
    for tokens in PROMPT_PARTS:
        size = sizes[variant_of(tokens)]
        assert size
        for gpu in problem.gpu_types.values():
            profile = problem.profiles.get((service.model, variant_of(tokens), gpu.name))
            for degree in profile.iteration if profile else ():
                assert profile
                if kv_tokens(profile, size, degree, gpu.memory_gib) < size.context_tokens:
                    continue
                cost, limits = iterations(
                    profile, size, gpu, degree, MOST_SEQUENCES, gpu.memory_gib, gpu.top_clock_mhz, 0.0
                )
                found.append(ServerShape(variant_of(tokens), gpu, degree, cost, limits, degree * prices[gpu.name]))
    return found


def throughput(shape: ServerShape, requests: RagRequests) -> float:
    """Returns the requests a second that a server answers while there is always another one, however late."""
    chosen = np.random.default_rng(0).choice(len(requests.inputs), SATURATED_REQUESTS)
    arrivals = np.arange(1.0, SATURATED_REQUESTS + 1)
    run = serve_stream(
        shape.cost, shape.limits, _stream(arrivals, requests.inputs[chosen], requests.outputs[chosen]),
        SATURATED_PER_SECOND,
    )  # fmt: skip
    assert run is not None  # nothing stops it early
    return 1000.0 * SATURATED_REQUESTS / run.end_ms


def unlimited(candidates: Sequence[ServerShape], requests: RagRequests, promise: TokenPromise) -> KeptShares:
    """Returns what requests get that have the best kind of server to themselves: no number of GPUs gives them more."""
    arrivals = np.arange(1.0, len(requests.times) + 1)
    found = []
    for shape in candidates:
        stream = _stream(arrivals, requests.inputs, requests.outputs)
        run = serve_stream(shape.cost, shape.limits, stream, 1 / ALONE_SECONDS)
        assert run is not None  # nothing stops it early
        ttft = run.ttft_ms <= promise.ttft_ms
        tpot = np.isnan(run.tpot_ms) | (run.tpot_ms <= promise.tpot_ms)
        found.append(KeptShares(float(ttft.mean()), float(tpot.mean()), float((ttft & tpot).mean())))
    return max(found, key=lambda shares: shares.both)


def _stream(arrivals: Floats, inputs: Integers, outputs: Integers) -> TokenStream:
    return TokenStream(arrivals, inputs, outputs, np.zeros(len(inputs), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class ThroughputPlanner:
    """Gives each service as many servers as its last observed rate fills by throughput, and knows of no promise.

    A service has servers of one shape, of the highest throughput for its price.
    """

    problem: Problem
    chosen: Mapping[str, tuple[ServerShape, float]]  # by service: its shape, and the throughput of a server

    @classmethod
    def choose(cls, problem: Problem, requests: Mapping[str, RagRequests]) -> ThroughputPlanner:
        """Returns the planner for the lengths of these requests."""
        chosen = {}
        for name, service in problem.services.items():
            rated = [(shape, throughput(shape, requests[name])) for shape in shapes(problem, service)]
            chosen[name] = max(rated, key=lambda found: found[1] / found[0].price_per_hour)
        return cls(problem, chosen)

    def plan(self, rates: Mapping[str, float]) -> Plan:
        """Returns the plan for these rates; declared rates count where none is observed yet."""
        free = {name: list(node.gpus) for name, node in self.problem.nodes.items()}
        instances: list[Instance] = []
        for name, (shape, each) in self.chosen.items():
            rate = rates.get(name, self.problem.services[name].rate_per_second)
            nodes = [node for node in self.problem.nodes.values() if node.gpu_type == shape.gpu.name]
            # Services start from opposite ends, so that no server moves when another service grows.
            nodes = nodes[::-1] if len(instances) else nodes
            slots = islice(_slots(nodes, shape.degree, free), max(1, ceil(rate / each)))
            instances += [self._instance(name, shape, each, node, gpus) for node, gpus in slots]
        return Plan(tuple(instances))

    def _instance(self, service: str, shape: ServerShape, rate: float, node: Node, gpus: tuple[int, ...]) -> Instance:
        return Instance(
            f"{service.replace('/', '-')}-{node.name}-{gpus[0]}", service, node.name, gpus[0], shape.variant,
            shape.limits.sequences, 0.0, 100, shape.gpu.memory_gib, shape.gpu.top_clock_mhz, rate,
            gpus=gpus if shape.degree > 1 else (),
        )  # fmt: skip


def _slots(nodes: Sequence[Node], degree: int, free: dict[str, list[int]]) -> Iterator[tuple[Node, tuple[int, ...]]]:
    """Yields places for servers one after the other, each as free GPUs of a node, which are then taken."""
    for node in nodes:
        while len(free[node.name]) >= degree:
            gpus, free[node.name] = tuple(free[node.name][:degree]), free[node.name][degree:]
            yield node, gpus
