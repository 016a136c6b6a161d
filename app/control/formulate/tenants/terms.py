"""What a tenant was promised and what holds it, read from its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.control.domain.snapshot import DeclaredObject
from solvers.planning.problem import Limit

NO_LIMIT = Limit()


@dataclass(frozen=True, slots=True)
class TenantTerms:
    """A tenant's guarantee, limits and budget; what is left at its default does not bind."""

    guarantee_gpus: float = 0.0
    limit: Limit = NO_LIMIT
    budget_per_month: float | None = None
    over_budget: str = "alarm"  # or freeze, degrade

    @property
    def weight(self) -> float:
        """Its part of what is left to share: as large as its guarantee, and as one GPU at least."""
        return max(self.guarantee_gpus, 1.0)

    def beside(self, gpus: float, price_per_hour: float) -> TenantTerms:
        """What is left of them for the rest, when so much stands outside of what is planned."""
        limit = Limit(_less(self.limit.gpus, gpus), _less(self.limit.price_per_hour, price_per_hour))
        return replace(self, guarantee_gpus=max(self.guarantee_gpus - gpus, 0.0), limit=limit)


def terms_of(declared: tuple[DeclaredObject, ...]) -> dict[str, TenantTerms]:
    """The terms of every declared tenant."""
    return {one.name: _terms(one.spec) for one in declared if one.kind == "Tenant"}


def _terms(spec: Mapping[str, Any]) -> TenantTerms:
    limit, budget = spec.get("limit") or {}, spec.get("budget") or {}
    return TenantTerms(
        guarantee_gpus=float((spec.get("guarantee") or {}).get("gpus", 0.0)),
        limit=Limit(limit.get("gpus"), limit.get("pricePerHour")),
        budget_per_month=budget.get("perMonth"),
        over_budget=spec.get("overBudget", "alarm"),
    )


def _less(limit: float | None, taken: float) -> float | None:
    return None if limit is None else max(limit - taken, 0.0)
