"""Morak's experiments (section VI) on its testbed: each network alone on four GPUs, offered all that it can serve.

The baselines have a whole GPU for each process and a law on the node. Morak's planner splits the GPUs, and Algorithm 1
sets batches and clocks from there; of ours the joint planner sets everything, and the node's law keeps the limits.
Where energy counts, it plans with the objective energy for what the baseline of the least energy serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from agents.policy.power.settings import PowerSettings
from app.control.formulate.problem import build_problem
from app.manifests.model import JSON
from lab.evaluate.morak.laws import ALGORITHM_1, METHODS, OURS, NodeMethod
from lab.evaluate.saturated import saturated_gpus
from lab.evaluate.testbeds import testbed
from simulation.world import set_policy
from solvers.planners.ask import find_plan
from solvers.planners.names import JOINT, MORAK
from solvers.planning.problem import Instance, Problem
from solvers.planning.solve import SolveBudget, find

NETWORKS = ("mobilenet", "googlenet", "resnet-101", "vgg")
THROUGHPUT_MS, ENERGY_MS = 100.0, 300.0  # the limits of sections VI-B and VI-D; the cap is 150 W in both
SECONDS, FROM_SECOND = 420, 180  # what comes before is the way to a steady state
SAME_MODEL = 5  # instances of a network on a GPU: four in the paper's figure 4, five at MobileNet's knee of 20 %
OFFERED_TIMES = 2.0  # of what whole GPUs serve without caps and limits
WORK = 60


@dataclass(frozen=True, slots=True)
class MorakRun:
    """A network under one method and one limit of latency."""

    network: str
    limit_ms: float
    planner: str
    seed: int


@dataclass(frozen=True, slots=True)
class MorakResult:
    """The requests and watts of four GPUs in the steady state, and how often a limit was broken."""

    experiment: str
    network: str
    limit_ms: float
    planner: str
    seed: int
    requests_per_second: float
    whole_gpu_share: float  # of what the GPUs serve whole, uncapped and without a limit
    watts: float  # of a GPU, on average
    joules_per_request: float
    over_cap_percent: float  # of seconds
    over_limit_percent: float  # of seconds in which some batch took longer
    longest_ms: float
    clock_mhz: float
    instances: int

    def figures(self) -> dict[str, Any]:
        """Returns what the JSON has of a run."""
        found: dict[str, Any] = {}
        for name, value in asdict(self).items():
            head, *rest = name.split("_")
            found[head + "".join(map(str.title, rest))] = round(value, 6) if isinstance(value, float) else value
        return found


PLANNERS = (*METHODS, MORAK, JOINT)


def morak_runs(seeds: Sequence[int]) -> list[MorakRun]:
    """Returns every run."""
    return [
        MorakRun(network, limit_ms, planner, seed)
        for planner in reversed(PLANNERS)  # those that plan take longest
        for network in NETWORKS
        for limit_ms in (THROUGHPUT_MS, ENERGY_MS)
        for seed in seeds
    ]


def measure_morak(run: MorakRun) -> MorakResult:
    """Plans and plays a run; the same one gives the same result in any process."""
    problem = saturated_problem(run.network, run.limit_ms)
    seats, method = _seated(problem, run)
    gpus, settings = saturated_gpus(problem, seats, method, run.seed), PowerSettings()
    requests = watts = longest = clocks = 0.0
    over_cap = over_limit = 0
    for second in range(SECONDS):
        periods = [gpu.period(settings) for gpu in gpus]
        if second < FROM_SECOND:
            continue
        slowest = max(max(found.times_ms.values()) for found in periods)
        longest = max(longest, slowest)
        over_limit += slowest > run.limit_ms
        for gpu, found in zip(gpus, periods, strict=True):
            requests, watts, clocks = requests + found.requests, watts + found.watts, clocks + found.clock_mhz
            over_cap += found.watts > gpu.kind.max_w
    seconds = SECONDS - FROM_SECOND
    per_second = requests / seconds
    whole = sum(whole_gpu_rate(problem) for _ in gpus)
    return MorakResult(
        f"{run.limit_ms:g} ms", run.network, run.limit_ms, run.planner, run.seed, per_second, per_second / whole,
        watts / seconds / len(gpus), watts / requests, 100 * over_cap / seconds / len(gpus), 100 * over_limit / seconds,
        longest, clocks / seconds / len(gpus), len(seats),
    )  # fmt: skip


@lru_cache(maxsize=16)
def saturated_problem(network: str, limit_ms: float) -> Problem:
    """Returns the testbed with one network, its limit as its SLO, and a rate that no plan can serve."""
    problem = _problem_of(network, limit_ms, {})
    return _set_rate(problem, OFFERED_TIMES * len(problem.nodes["server-1"].gpus) * whole_gpu_rate(problem))


def saving_problem(network: str, limit_ms: float, seed: int) -> Problem:
    """Returns the testbed with the objective energy, at the rate that the baseline of the least energy serves."""
    runs = [MorakRun(network, limit_ms, planner, seed) for planner in METHODS]
    thriftiest = min(map(measure_morak, runs), key=lambda found: found.joules_per_request)
    return _set_rate(_problem_of(network, limit_ms, {"objective": "energy"}), thriftiest.requests_per_second)


def _problem_of(network: str, limit_ms: float, policy: Mapping[str, JSON]) -> Problem:
    name = f"serving/{network}"
    problem = build_problem(set_policy(testbed("morak", {name: 1.0}), {"sameModelPerGpu": SAME_MODEL, **policy}))
    return replace(problem, services={name: replace(problem.services[name], slo_ms=limit_ms)})


def _set_rate(problem: Problem, rate_per_second: float) -> Problem:
    return problem.change_rates(dict.fromkeys(problem.services, rate_per_second))


def whole_gpu_rate(problem: Problem) -> float:
    """Returns the requests a second of a whole GPU at its largest measured batch and highest clock."""
    (profile,) = (
        found for found in problem.profiles.values() if found.model in {s.model for s in problem.services.values()}
    )
    batch = max(profile.latency_ms)
    return 1000.0 * batch / profile.latency_ms[batch][-1][1]


def _seated(problem: Problem, run: MorakRun) -> tuple[Sequence[Instance], NodeMethod]:
    budget = SolveBudget(None, WORK, run.seed)
    if run.planner == MORAK:
        return find_plan(problem, MORAK, budget, alone=True, bounds=False).plan.instances, ALGORITHM_1
    if run.planner == JOINT:
        if run.limit_ms == ENERGY_MS:
            problem = saving_problem(run.network, run.limit_ms, run.seed)
        return find(problem, budget, alone=True).plan.instances, OURS
    (service,) = problem.services.values()
    method, node = METHODS[run.planner], problem.nodes["server-1"]
    top = problem.type_of(node.name).top_clock_mhz
    (variant,) = service.variants
    return [
        Instance(
            f"{service.name}/{gpu}", service.name, node.name, gpu, variant, method.batch or 1, 0.0, 100, 0.0, top, 0.0
        )
        for gpu in node.gpus
    ], method
