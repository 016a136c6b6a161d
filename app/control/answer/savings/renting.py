"""Prices the GPUs of a baseline: as many as it needs of a type, on whole nodes where the fleet pays for these."""

from __future__ import annotations

from solvers.planning.judge.billing import is_billed_whole, whole_price
from solvers.planning.problem import Problem


def least_rent(problem: Problem, gpu_type: str, gpus: int) -> float:
    """Returns the least price per hour of so many GPUs of a type, on any number of nodes like those of the fleet."""
    ways: dict[int, float] = {}  # GPUs: the least price of so many, taken together
    for node in problem.nodes.values():
        if node.gpu_type == gpu_type:
            is_whole = is_billed_whole(node, problem.policy)
            size, price = (node.gpu_count, whole_price(node)) if is_whole else (1, node.price_per_hour)
            ways[size] = min(ways.get(size, price), price)
    least = [0.0]
    for needed in range(1, gpus + 1):
        least.append(min(price + least[max(0, needed - size)] for size, price in ways.items()))
    return least[gpus]
