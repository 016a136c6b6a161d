"""The benchmarks of research, by name; `gpuwright bench` finds this table by an entry point."""

from __future__ import annotations

from cli.bench import Benchmark

BENCHMARKS = {
    "fallback": Benchmark(
        "lab.bench.fallback", "risen rates without the joint solver: time until what is missing is added"
    ),
    "drift": Benchmark(
        "lab.bench.drift",
        "GPUs that turn slower: time until SLOs hold again, by regions of curves and by one factor",
    ),
    "profiler": Benchmark(
        "lab.bench.profiler", "how far the Profiles of campaigns are from the truth of simulated GPUs"
    ),
    "hetsev": Benchmark("lab.bench.hetsev", "cost of our plan against HetSev's greedy on the same problem"),
    "growth": Benchmark("lab.bench.growth", "how time to a plan grows with the fleet"),
    "family": Benchmark("lab.bench.family", "write the problems of a family as manifest files"),
    "place": Benchmark("lab.bench.place", "pods of the openb trace onto its nodes, one at a time"),
    "inferno": Benchmark("lab.bench.published", "inferno's small fleet, to its published optima"),
    "parvagpu": Benchmark("lab.bench.published", "ParvaGPU's scenarios, to their GPU counts"),
    "llm": Benchmark(
        "lab.bench.llm",
        "cost of plans for language models against Melange, one GPU type, and prefill and decode apart",
    ),
    "rag": Benchmark(
        "lab.bench.rag",
        "a service of retrieved passages, planned online, by a static fleet, and by throughput",
    ),
    "accuracy": Benchmark("lab.bench.accuracy", "how wrong predictions are on public measurements, out of sample"),
    "risk": Benchmark("lab.bench.risk", "how often hours overspend at the risk asked for, under loads made to hurt"),
    "sharing": Benchmark("lab.bench.sharing", "time of Mudi's decision: the smallest shares of SMs in a cluster"),
    "power": Benchmark("lab.bench.power", "the node's power loop against Morak's Algorithm 1 as printed"),
}
