"""The bill of services for a node: each GPU that they use, all of it while one of them runs there, or nothing."""

from __future__ import annotations

from solvers.planning.problem import Node, Policy

PAID_SHARE = 1e-6  # of its price counts a GPU that is paid anyway: of plans alike, the one with fewer in use is better


def is_billed_whole(node: Node, policy: Policy) -> bool:
    """Returns whether all of a node is paid while a service runs on any GPU of it; where shares are priced, none is.

    A node of one GPU is paid by GPU, which is the same.
    """
    return node.pricing == "node" and policy.pricing == "gpu" and node.gpu_count > 1


def whole_price(node: Node) -> float:
    """Returns the price of all GPUs of a node for an hour."""
    return node.gpu_count * node.price_per_hour


def gpu_price(node: Node) -> float:
    """Returns what services pay for a GPU by itself, where its node is not billed whole."""
    return node.price_per_hour * (PAID_SHARE if node.pricing == "paid" else 1.0)


def price_of_used(node: Node, policy: Policy, gpus: int) -> float:
    """Returns what a node costs of which services use so many GPUs, where shares are not priced."""
    return (whole_price(node) if is_billed_whole(node, policy) else gpus * gpu_price(node)) if gpus else 0.0
