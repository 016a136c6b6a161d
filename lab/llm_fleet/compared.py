"""Runs the comparison: every planner at every level of promises and load, judged by one simulation.

A plan is made for a rate and judged at the trace's own lengths. Planners err on either side, so each may also plan for
less or more than the rate, in steps: its cheapest plan with which the promise holds is what costs are compared by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from lab.llm_fleet.catalogue import (
    CONTEXT_TOKENS,
    ENERGY_PRICE_PER_KWH,
    GPU_PRICES,
    MODELS,
    PROMPT_PARTS,
    ServerCatalogue,
    gpu_cost_per_hour,
)
from lab.llm_fleet.measured import fit_all, fit_row
from lab.llm_fleet.melange import melange
from lab.llm_fleet.servers import SEED, kinds_of, servers_of
from lab.llm_fleet.trace import read_trace
from solvers.planning.judge import judge
from solvers.planning.language import TokenPromise
from solvers.planning.mixed import MixedCase
from solvers.planning.problem import Instance, Problem, Service
from solvers.planning.solve import SolveBudget, find
from solvers.pools.apart import plan_apart
from solvers.pools.confirm import FACTOR_STEP, ChooseServers, ConfirmedServers, KeepsPromise, confirm_servers
from solvers.pools.cover import find_cheapest_pools
from solvers.pools.links import NETWORK, KeysSent, ServerLink
from solvers.pools.rated import rate_shape
from solvers.pools.servers import RatedServer, RequestTrial, ServedShares, ServerGroup, SizedServers, TogetherServers

OURS, APART, EITHER = "ours", "apart", "ours or apart"
LEAST_FACTOR = 0.5  # of the rate: plans for less are tried, too
MOST_MISSES = 2  # in a row, then the search ends: costs fall in steps, and cheaper servers may hold what dearer do not
CENT = 0.01
LINK_GBIT = 200.0  # of each GPU, as a DGX A100 has
LOADS = (0.5, 2.0, 8.0)  # times the trace's rate


Confirmed: TypeAlias = ConfirmedServers[SizedServers]
Choosing: TypeAlias = ChooseServers[SizedServers]


def find_cheaper(best: Confirmed, choose: Choosing, keeps: KeepsPromise, rate_per_second: float) -> Confirmed:
    """Returns the cheapest servers that hold, of plans for less and less of the rate, until two in a row miss."""
    misses, number = 0, 1
    while misses < MOST_MISSES and (factor := round(1 - number * FACTOR_STEP, 2)) >= LEAST_FACTOR:
        number += 1
        servers = choose(factor * rate_per_second)
        if servers is None or servers.cost_per_hour > best.price_per_hour - CENT:
            continue
        is_kept = keeps(servers)
        best, misses = (ConfirmedServers(factor, servers), 0) if is_kept else (best, misses + 1)
    return best


@dataclass(frozen=True, slots=True)
class ComparedCase:
    """A level of promises at a load, with what is simulated."""

    catalogue: ServerCatalogue
    problem: Problem
    level: str
    load: float
    requests: int
    seed: int = SEED

    def promise(self, service: Service) -> TokenPromise:
        assert service.tokens
        return service.tokens.promise

    def shares(self, service: Service, servers: SizedServers) -> ServedShares:
        """Returns what requests of the trace get from these servers."""
        trial = RequestTrial(
            self.catalogue.trace, self.promise(service), service.rate_per_second, self.requests, self.seed
        )
        return servers.simulate(trial)

    def held(self, service: Service, sizing: Choosing) -> Confirmed | None:
        """Returns the cheapest servers found with which the promise holds; None if none do."""

        def keeps(servers: SizedServers) -> bool:
            return self.shares(service, servers).keeps(self.promise(service))

        best = confirm_servers(sizing, keeps, service.rate_per_second)
        return best if best is None or best.factor > 1 else find_cheaper(best, sizing, keeps, service.rate_per_second)


def run(
    data: Path, loads: Sequence[float], levels: Sequence[str], requests: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Returns the fits, the promises, and a row for each planner, level and load."""
    catalogue = ServerCatalogue(fit_all(data), read_trace(data, CONTEXT_TOKENS))
    rows: list[dict[str, Any]] = []
    for level in levels:
        for load in loads:
            say(f"{level} promises, {load:g} times the trace's rate")
            problem = catalogue.problem(level, load)
            rows += _rows(ComparedCase(catalogue, problem, level, load, requests))
    lengths = catalogue.trace.lengths
    return {
        "rows": rows,
        "fits": [fit_row(kind, fit) for kind, fit in catalogue.fits.items()],
        "promises": {
            f"{level}/{model}": asdict(catalogue.promise(model, level))
            for level in levels
            for model in catalogue.models
        },
        "prices": {"gpuPerHour": GPU_PRICES, "energyPerKwh": ENERGY_PRICE_PER_KWH},
        "trace": {
            "requests": len(catalogue.trace.inputs), "ratePerSecond": round(catalogue.trace.rate_per_second, 4),
            "inputMean": lengths.input_mean, "inputP95": lengths.input_p95, "outputMean": lengths.output_mean,
            "outputP95": lengths.output_p95,
        },
    }  # fmt: skip


def _rows(case: ComparedCase) -> Iterator[dict[str, Any]]:
    problem = case.problem
    plan = find(problem, SolveBudget(None, 2), alone=True).plan
    assert plan.certificate
    verdict = judge(problem, plan)
    planned: dict[str, SizedServers | None] = {
        name: _together(_grouped(problem, service, plan.instances)) for name, service in problem.services.items()
    }
    found: dict[str, dict[str, Choosing]] = defaultdict(dict)
    for name, service in problem.services.items():
        for planner, sizing in _sizings(case, service).items():
            found[planner][name] = sizing
    held = {planner: _held(case, sizings) for planner, sizings in found.items()}
    single = [planner for planner in held if planner.startswith("only ")]
    cheapest = min(single, key=lambda planner: _cost(held[planner]), default=None)
    ours = _row(case, OURS, planned, held[OURS])
    ours |= {
        "bound": plan.certificate.bound, "gap": plan.certificate.gap, "unserved": len(plan.unserved),
        "judgedCost": verdict.cost.total, "violations": [str(violation) for violation in verdict.violations],
    }  # fmt: skip
    yield ours | {"ratio": 1.0}
    for planner, sizings in found.items():
        if planner == OURS or (planner in single and planner != cheapest):
            continue
        first = {name: sizings[name](service.rate_per_second) for name, service in problem.services.items()}
        row = _row(case, planner, first, held[planner])
        yield row | {"ratio": _ratio(row, ours)}
    cheaper = {name: _find_cheapest(held[OURS][name], held[APART][name]) for name in problem.services}
    # The cheaper of two searches is chosen by chance, too: its shares are those of requests that neither has seen.
    row = _row(
        replace(case, seed=SEED + 1),
        EITHER,
        {name: found.servers if found else None for name, found in cheaper.items()},
        cheaper,
    )
    yield row | {"ratio": _ratio(row, ours)}


def _find_cheapest(*found: Confirmed | None) -> Confirmed | None:
    """Returns the first of those that cost least; None where the promise holds with none."""
    return min(filter(None, found), key=lambda confirmed: confirmed.price_per_hour, default=None)


def _ratio(row: Mapping[str, Any], ours: Mapping[str, Any]) -> float | None:
    return row["heldCost"] / ours["heldCost"] if row["heldCost"] and ours["heldCost"] else None


def _sizings(case: ComparedCase, service: Service) -> dict[str, Choosing]:
    """Returns every planner for a service, from a rate to servers."""
    problem, promise = case.problem, case.promise(service)
    servers = servers_of(problem, service)
    trace, size = case.catalogue.trace, MODELS[service.model]
    by_buckets = melange(servers, trace, promise, CONTEXT_TOKENS)
    kinds = kinds_of(problem, service, max(PROMPT_PARTS))
    link = ServerLink(NETWORK, dict.fromkeys(problem.gpu_types, LINK_GBIT))
    two_pools = plan_apart(kinds, trace.lengths, promise, KeysSent(link, size.kv_bytes_per_token))
    single = {f"only {name}": _covering([s for s in servers if s.gpu_type == name]) for name in problem.gpu_types}
    return {
        OURS: lambda rate: _ours(problem, service, rate),
        "melange": lambda rate: _together(by_buckets.groups(rate)),
        "melange blind": lambda rate: _together(by_buckets.blind_groups(rate)),
        **single,
        APART: two_pools.find_servers,
    }


def _covering(servers: Sequence[RatedServer]) -> Choosing:
    def cover(rate: float) -> TogetherServers | None:
        pools = find_cheapest_pools([servers], rate)
        return _together(pools[0]) if pools else None

    return cover


def _together(groups: Sequence[ServerGroup] | None) -> TogetherServers | None:
    return TogetherServers(groups) if groups else None


def _ours(problem: Problem, service: Service, rate: float) -> TogetherServers | None:
    """Returns what our integer programme chooses for another rate, without the judge's look at it."""
    case = MixedCase(replace(problem, services={service.name: replace(service, rate_per_second=rate)}))
    instances, chosen = case.chosen(case.terms())
    if chosen.unserved.get(service.name, 0.0) > 0:
        return None
    return _together(_grouped(problem, service, instances))


def _grouped(problem: Problem, service: Service, instances: Sequence[Instance]) -> list[ServerGroup]:
    """Returns the service's instances by shape and rate."""
    shapes = {
        (shape.variant, shape.gpu_type, shape.degree, shape.batch, shape.clock_mhz): shape
        for shape in MixedCase(problem).shapes
        if shape.service == service.name
    }
    alike: dict[tuple[Any, float], list[Instance]] = defaultdict(list)
    for line in [each for each in instances if each.service == service.name]:
        key = line.variant, problem.type_of(line.node).name, line.degree, line.batch, line.clock_mhz
        alike[key, line.rate_per_second].append(line)
    servers = {key: rate_shape(problem, service, shapes[key], gpu_cost_per_hour(key[1])) for key, _ in alike}
    return [ServerGroup(servers[key], len(lines), rate * len(lines)) for (key, rate), lines in alike.items()]


def _held(case: ComparedCase, sizings: Mapping[str, Choosing]) -> dict[str, Confirmed | None]:
    return {name: case.held(service, sizings[name]) for name, service in case.problem.services.items()}


def _cost(held: Mapping[str, Confirmed | None]) -> float:
    return sum(found.servers.cost_per_hour if found else float("inf") for found in held.values())


def _row(
    case: ComparedCase, planner: str, planned: Mapping[str, SizedServers | None],
    held: Mapping[str, Confirmed | None],
) -> dict[str, Any]:  # fmt: skip
    """Returns what a planner's plan for the rate itself costs and gives, and its cheapest plan that keeps promises."""
    services = case.problem.services
    shares = {name: case.shares(services[name], servers) for name, servers in planned.items() if servers}
    missed = [name for name in services if name not in shares or not shares[name].keeps(case.promise(services[name]))]
    whole, reached = len(shares) == len(services), all(held.values())
    gpus: dict[str, int] = defaultdict(int)
    for found in held.values():
        for gpu_type, count in found.servers.gpu_counts.items() if found else ():
            gpus[gpu_type] += count
    return {
        "level": case.level,
        "load": case.load,
        "planner": planner,
        "cost": sum(servers.cost_per_hour for servers in planned.values() if servers) if whole else None,
        "attainment": {name: round(100 * min(found.ttft, found.tpot), 3) for name, found in shares.items()},
        "worst": min((round(100 * min(found.ttft, found.tpot), 3) for found in shares.values()), default=None),
        "missed": missed,
        "heldCost": _cost(held) if reached else None,
        "factors": {name: found.factor for name, found in held.items() if found},
        "gpus": dict(sorted(gpus.items())),
    }
