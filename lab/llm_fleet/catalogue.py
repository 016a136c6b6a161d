"""Builds the planning problem: splitwise's GPU types at its prices, its two models, and promises in its manner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from benchmarks.language_models import A100, H100
from lab.data.missing_data import DataMissing
from lab.llm_fleet.measured import FittedIteration, ServerKind
from lab.llm_fleet.trace import TracedRequests
from solvers.planning.fleet.offers import read_offers
from solvers.planning.language import LlmSize, TokenLengths, TokenPromise, TokenService
from solvers.planning.problem import Demand, GpuType, Node, Policy, Problem, Profile, Service, Variant, gpu_indexes

# Price of a GPU and hour as in splitwise's evaluation, in dollars; the capped H100 costs as much and draws 0.7.
GPU_PRICES = {"a100-80gb": 2.21, "h100-80gb": 4.76, "h100-80gb-pcap": 4.76}
GPU_TYPES = {gpu.name: gpu for gpu in (A100, H100, replace(H100, name="h100-80gb-pcap", max_w=490.0))}
ENERGY_PRICE_PER_KWH = 0.08  # dollars: about what industry paid in the United States in 2023
CONTEXT_TOKENS = 16_384  # the trace's longest request has 14,089
MODELS = {  # weights in half precision, and keys and values of a token
    "llama2-70b": LlmSize(130.0, 327_680.0, CONTEXT_TOKENS),
    "bloom-176b": LlmSize(329.0, 4_014_080.0, CONTEXT_TOKENS),
}
RATE_SHARES = {"llama2-70b": 1.0, "bloom-176b": 0.25}  # of the load
PROMPT_PARTS = (512, 2048)  # tokens that an iteration computes at most: an engine's setting, a variant here
OVERHEAD_GIB = 4.0
GPUS_PER_NODE = 8
PERCENTILE = 95.0
REFERENCE = ("a100-80gb", 8)  # where a request alone takes the time that promises are multiples of
LEVELS = {"tight": (2.0, 1.25), "middle": (3.0, 1.5), "loose": (6.0, 5.0)}  # of TTFT and TPOT, as splitwise's
FLEET_TIMES = 2  # GPUs of each type, times those that would serve everything


@dataclass(frozen=True, slots=True)
class ServerCatalogue:
    """The facts about servers and requests before anything is planned."""

    fits: Mapping[ServerKind, FittedIteration]
    trace: TracedRequests

    @property
    def models(self) -> list[str]:
        """Returns the models that were measured and whose size is known."""
        return [model for model in MODELS if any(kind[0] == model for kind in self.fits)]

    def promise(self, model: str, level: str) -> TokenPromise:
        """Returns multiples of what a long prompt and a token take alone on eight A100."""
        fit = self.fits.get((model, *REFERENCE))
        if fit is None:
            raise DataMissing(f"{model} was not measured on {REFERENCE[1]} {REFERENCE[0]}, which promises refer to")
        tokens, held = self.trace.lengths.input_p95, self.trace.lengths.input_mean
        parts = ceil(tokens / max(PROMPT_PARTS))
        prompt_ms = parts * fit.cost.milliseconds(tokens / parts, 0.0, 0, 0.0)
        ttft, tpot = LEVELS[level]
        return TokenPromise(
            round(ttft * prompt_ms), round(tpot * fit.cost.milliseconds(0, 0.0, 1, held), 1), PERCENTILE
        )

    def problem(self, level: str, load: float) -> Problem:
        """Returns the problem at this many times the trace's rate, with GPUs enough of each type."""
        models = self.models
        if not models:
            raise DataMissing(f"none of {', '.join(MODELS)} was measured on any of {', '.join(GPU_TYPES)}")
        services = [self._service(model, level, load) for model in models]
        problem = Problem(
            GPU_TYPES,
            {name: _node(name, gpu) for name, gpu in zip(GPU_TYPES, GPU_TYPES.values(), strict=True)},
            {model: self._variants(model) for model in models},
            {profile.key: profile for model in models for profile in self._profiles(model)},
            {service.name: service for service in services},
            policy=Policy(exec_margin=0.0, energy_price_per_kwh=ENERGY_PRICE_PER_KWH),
        )
        return replace(problem, nodes=_nodes(problem))

    def _service(self, model: str, level: str, load: float) -> Service:
        promise = self.promise(model, level)
        lengths: TokenLengths = self.trace.lengths
        variants = tuple(variant.name for variant in self._variants(model))
        rate = load * RATE_SHARES[model] * self.trace.rate_per_second
        return Service(
            f"bench/{model}", "bench", model, variants, promise.ttft_ms, PERCENTILE, rate,
            tokens=TokenService(promise, lengths),
        )  # fmt: skip

    def _variants(self, model: str) -> tuple[Variant, ...]:
        degrees = tuple(sorted({degree for name, _, degree in self.fits if name == model}))
        return tuple(
            Variant(f"parts-{tokens}", 1.0, llm=replace(MODELS[model], degrees=degrees)) for tokens in PROMPT_PARTS
        )

    def _profiles(self, model: str) -> list[Profile]:
        found = []
        for gpu in GPU_TYPES.values():
            costs = {
                degree: fit.cost for (name, kind, degree), fit in self.fits.items() if (name, kind) == (model, gpu.name)
            }
            demand = Demand(power_w=((100, gpu.max_w - gpu.idle_w),))
            found += [
                Profile(model, f"parts-{tokens}", gpu.name, {}, {}, demand, 90.0, costs, OVERHEAD_GIB, tokens)
                for tokens in PROMPT_PARTS
                if costs
            ]
        return found


def gpu_cost_per_hour(gpu_type: str) -> float:
    """Returns what a GPU in use costs: its price, and its most watts all the time."""
    return GPU_PRICES[gpu_type] + GPU_TYPES[gpu_type].max_w / 1000 * ENERGY_PRICE_PER_KWH


def _nodes(problem: Problem) -> dict[str, Node]:
    """Returns nodes of each type on which everything could run twice."""
    gpus = dict.fromkeys(GPU_TYPES, 0.0)
    for service in problem.services.values():
        shapes = read_offers(problem).find_token_shapes(service)
        for name in gpus:
            most = max((s.rate_per_second / s.degree for s in shapes if s.gpu_type == name), default=None)
            if most is not None:
                gpus[name] += FLEET_TIMES * service.rate_per_second / most + GPUS_PER_NODE
    return {
        f"{name}-{number:03d}": _node(f"{name}-{number:03d}", GPU_TYPES[name])
        for name, count in gpus.items()
        for number in range(max(1, ceil(count / GPUS_PER_NODE)))
    }


def _node(name: str, gpu: GpuType) -> Node:
    return Node(name, gpu.name, gpu_indexes(GPUS_PER_NODE), 128.0, 2048.0, GPU_PRICES[gpu.name])
