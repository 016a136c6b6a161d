"""Draws family L from a seed: language models on whole GPUs beside the services of family A, on one fleet.

Three fifths of the GPUs are family A's, with its services at its load; the rest are nodes of eight linked A100 and H100
of 80 GB, on which those services may run, too. A fifth of the services are language models of 8 to 70 billion
parameters, at half precision. The time of an iteration is composed from data sheets, at 60 % of their bandwidth and
45 % of their arithmetic; their rates would fill 0.3 of the large GPUs, each in its best shape.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2

import numpy as np

from benchmarks.hardware import read_gpu_type
from benchmarks.models import round_figure
from solvers.planning.fleet.offers import read_offers
from solvers.planning.language import IterationCost, LlmSize, TokenLengths, TokenPromise, TokenService
from solvers.planning.problem import Demand, GpuType, Node, Problem, Profile, Service, Variant, gpu_indexes

SMALL_SHARE = 0.6  # of the GPUs: family A's
MODEL_SHARE = 0.2  # of the services: language models
LARGE_LOAD = 0.3
GPUS_PER_NODE = 8
BANDWIDTH_SHARE, ARITHMETIC_SHARE = 0.6, 0.45
GIB = 2**30

A100 = read_gpu_type("a100-sxm4-80gb", "a100-80gb", (1410.0,))
H100 = read_gpu_type("h100-sxm5-80gb", "h100-80gb", (1980.0,))
# Type, price an hour, bytes and operations a second, and how many times as fast as family A's A100 of 40 GB.
LARGE = (
    (A100, 2.6, 2.04e12, 312e12, 1.0),
    (H100, 5.0, 3.35e12, 989e12, 1.8),
)
# Name, parameters, layers, bytes of keys and values a token, and degrees.
MODELS = (
    ("chat-8b", 8.0e9, 32, 131_072.0, (1, 2)),
    ("chat-13b", 13.0e9, 40, 819_200.0, (1, 2, 4)),
    ("chat-34b", 34.0e9, 48, 196_608.0, (2, 4, 8)),
    ("chat-70b", 70.0e9, 80, 327_680.0, (4, 8)),
)
CONTEXT_TOKENS = 8_192


def add_language_models(ordinary: Problem, gpus: int, services: int, seed: int) -> Problem:
    """Returns a problem of family A with nodes of large GPUs and this many language models."""
    rng = np.random.default_rng([seed, 4])
    added = [profile_of(model, large) for model in MODELS for large in LARGE]
    also = [_faster(p, large) for p in ordinary.profiles.values() if p.gpu_type == "a100-pcie-40gb" for large in LARGE]
    problem = replace(
        ordinary,
        gpu_types={**ordinary.gpu_types, **{large[0].name: large[0] for large in LARGE}},
        nodes={**ordinary.nodes, **_nodes(gpus)},
        models={**ordinary.models, **{model[0]: (_variant(model),) for model in MODELS}},
        profiles={**ordinary.profiles, **{profile.key: profile for profile in [*added, *also]}},
    )
    popularity = np.arange(1, services + 1, dtype=float) ** -0.9
    parts = rng.permutation(popularity / popularity.sum())
    made = [_service(rng, problem, number) for number in range(services)]
    for service, part in zip(made, parts, strict=True):
        shapes = read_offers(problem).find_token_shapes(service)
        most = max((shape.rate_per_second / shape.degree for shape in shapes), default=0.01)
        rate = round_figure(LARGE_LOAD * gpus * float(part) * most)
        problem = replace(problem, services={**problem.services, service.name: replace(service, rate_per_second=rate)})
    return problem


def sizes(gpus: int, services: int) -> tuple[int, int]:
    """Returns how many GPUs are large, and how many services are language models; at least one of each."""
    return max(GPUS_PER_NODE, round(gpus * (1 - SMALL_SHARE))), max(1, round(services * MODEL_SHARE))


def _nodes(gpus: int) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for number in range(max(1, gpus // GPUS_PER_NODE)):
        gpu, price, *_ = LARGE[number % len(LARGE)]
        name = f"{gpu.name}-{number:03d}"
        nodes[name] = Node(name, gpu.name, gpu_indexes(GPUS_PER_NODE), 128.0, 1024.0, price)
    return nodes


def _variant(model: tuple[str, float, int, float, tuple[int, ...]]) -> Variant:
    _, parameters, _, kv_bytes, degrees = model
    return Variant("fp16", 0.7, llm=LlmSize(2 * parameters / GIB, kv_bytes, CONTEXT_TOKENS, degrees))


def profile_of(
    model: tuple[str, float, int, float, tuple[int, ...]], large: tuple[GpuType, float, float, float, float]
) -> Profile:
    """Returns the profile of a model on a large GPU."""
    name, parameters, layers, kv_bytes, degrees = model
    gpu, _, bandwidth, operations, _ = large
    costs = {
        degree: IterationCost(
            base_ms=1.0 + 0.03 * layers + 0.02 * layers * log2(degree),
            token_ms=1000 * 2 * parameters / (degree * operations * ARITHMETIC_SHARE),
            weights_ms=1000 * 2 * parameters / (degree * bandwidth * BANDWIDTH_SHARE),
            sequence_ms=0.01,
            kv_token_ms=1000 * kv_bytes / (degree * bandwidth * BANDWIDTH_SHARE),
        )
        for degree in degrees
    }
    demand = Demand(cpu_cores=4.0, host_memory_gib=32.0, power_w=((100, 0.8 * (gpu.max_w - gpu.idle_w)),))
    return Profile(name, "fp16", gpu.name, {}, {}, demand, 90.0, costs, 4.0)


def _faster(profile: Profile, large: tuple[GpuType, float, float, float, float]) -> Profile:
    """Returns a profile of family A on a large GPU."""
    gpu, times = large[0], large[4]
    latency_ms = {
        batch: tuple((percent, ms / times) for percent, ms in curve) for batch, curve in profile.latency_ms.items()
    }
    return replace(profile, gpu_type=gpu.name, latency_ms=latency_ms)


def _service(rng: np.random.Generator, problem: Problem, number: int) -> Service:
    name = MODELS[int(rng.integers(len(MODELS)))][0]
    costs = [cost for large in LARGE for cost in problem.profiles[name, "fp16", large[0].name].iteration.values()]
    inputs, outputs = float(rng.uniform(300, 1800)), float(rng.uniform(60, 350))
    lengths = TokenLengths(
        round_figure(inputs), round_figure(inputs * float(rng.uniform(2.0, 3.2))), round_figure(outputs),
        round_figure(outputs * float(rng.uniform(1.8, 3.0))), round(float(rng.uniform(0.0, 0.4)), 2),
    )  # fmt: skip
    pace = min(cost.base_ms + cost.weights_ms for cost in costs)
    prompt = min(cost.base_ms + cost.token_ms * lengths.input_p95 for cost in costs)
    ttft = round_figure(max(500.0, prompt * float(rng.uniform(3.0, 8.0))))
    tpot = round_figure(pace * float(rng.uniform(2.5, 6.0)))
    percentile = float(rng.choice((90.0, 95.0, 99.0)))
    promise = TokenPromise(ttft, tpot, percentile)
    full = f"bench/chat-{number:05d}"
    return Service(full, "bench", name, ("fp16",), ttft, percentile, 1.0, tokens=TokenService(promise, lengths))
