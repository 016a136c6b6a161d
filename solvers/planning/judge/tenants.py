"""Rules of a tenant: its instances' use of the fleet is within its limit."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from typing import TypeAlias

from solvers.planning.judge.readings import JudgedGpu
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.problem import Limit, Problem

Shares: TypeAlias = Mapping[tuple[str, int], tuple[float, float]]  # by GPU: a tenant's share of it, and its price


def shares_of(gpu: JudgedGpu) -> dict[str, float]:
    """Returns the share of a GPU by tenant: sum of smPercent / 100, and once the whole GPU for a dedicated service."""
    if not gpu.residents:
        return {}
    taken: dict[str, list[float]] = {}
    whole: set[str] = set()
    for line in gpu.residents:
        if line.service is None:
            continue
        tenant = line.service.tenant
        shares = taken.setdefault(tenant, [])
        if not line.service.is_dedicated:
            shares.append(line.instance.sm_percent / 100)
        elif line.service.name not in whole:
            whole.add(line.service.name)
            shares.append(1.0)
    return {tenant: fsum(shares) for tenant, shares in taken.items()}


def gpus_within_limit(problem: Problem, limit: Limit, shares: Shares) -> str | None:
    """sum of the shares <= limit.gpus"""
    if limit.gpus is None:
        return None
    taken = fsum([share for share, _ in shares.values()])
    return (
        None if is_at_most(taken, limit.gpus) else f"its instances take {taken:.6g} GPUs, over its limit {limit.gpus:g}"
    )


def price_within_limit(problem: Problem, limit: Limit, shares: Shares) -> str | None:
    """sum of share x its GPU's price <= limit.pricePerHour"""
    if limit.price_per_hour is None:
        return None
    price = fsum([share * price_per_hour for share, price_per_hour in shares.values()])
    if is_at_most(price, limit.price_per_hour):
        return None
    return f"its instances cost {price:.6g} an hour, over its limit {limit.price_per_hour:g}"


RULES = (gpus_within_limit, price_within_limit)
