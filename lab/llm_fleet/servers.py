"""The servers of a language model that the planners of the comparison choose from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab.llm_fleet.catalogue import gpu_cost_per_hour
from lab.llm_fleet.trace import TracedRequests
from solvers.llm.streams import TokenStream
from solvers.planning.fleet.offers import read_offers
from solvers.planning.problem import Problem, Service
from solvers.pools.rated import list_kinds, rate_shape
from solvers.pools.servers import Floats, RatedServer

SEED = 11  # of the requests that every plan is judged by; no planner draws from it


@dataclass(frozen=True, eq=False)
class WeightedRequests:
    """Requests of a trace, some of which are drawn more often than others."""

    trace: TracedRequests
    weights: Floats

    def draw_requests(self, requests: int, seed: int) -> TokenStream:
        return self.trace.draw_requests(requests, seed, self.weights)


def servers_of(problem: Problem, service: Service) -> list[RatedServer]:
    """Returns every shape in which a server carries any load, with its best number of requests at once."""
    return [
        rate_shape(problem, service, shape, gpu_cost_per_hour(shape.gpu_type))
        for shape in read_offers(problem).find_token_shapes(service)
    ]


def kinds_of(problem: Problem, service: Service, tokens_per_iteration: int) -> list[RatedServer]:
    """Returns a server of each GPU type and degree that holds the longest request, without a rate."""
    named = {variant.name: variant for variant in problem.models[service.model]}
    kinds = list_kinds(problem, service, named[f"parts-{tokens_per_iteration}"], problem.gpu_types)
    return [replace(server, gpu_price_per_hour=gpu_cost_per_hour(server.gpu_type)) for server in kinds]
