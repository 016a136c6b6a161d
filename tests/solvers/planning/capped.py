"""Problems whose nodes have caps of watts, drawn from a seed or made of other problems."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from solvers.planning.problem import Problem


def with_caps(problem: Problem, seed: int) -> Problem:
    """Returns the problem with caps on most nodes: one for all of its GPUs, or one for each."""
    r = Random(f"{seed} caps")
    nodes = dict(problem.nodes)
    for name, node in nodes.items():
        kind, size = problem.gpu_types[node.gpu_type], node.gpus[-1] + 1
        drawn = [kind.idle_w + r.uniform(0.05, 1.0) * (kind.max_w - kind.idle_w) for _ in range(size)]
        if r.random() < 0.8:
            nodes[name] = replace(node, caps_w=tuple(drawn if r.random() < 0.6 else drawn[:1] * size))
    return replace(problem, nodes=nodes)


def at_cap(problem: Problem, cap_w: float) -> Problem:
    """Returns the problem with the same cap for all GPUs."""
    nodes = {name: replace(node, caps_w=(cap_w,) * (node.gpus[-1] + 1)) for name, node in problem.nodes.items()}
    return replace(problem, nodes=nodes)
