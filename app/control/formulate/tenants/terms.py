"""A tenant's guarantee, limits and budget, read from its manifest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import Spec
from solvers.planning.problem import Limit

NO_LIMIT = Limit()


@dataclass(frozen=True, slots=True)
class TenantTerms:
    """A tenant's guarantee, limits and budget; defaults do not bind."""

    guarantee_gpus: float = 0.0
    limit: Limit = NO_LIMIT
    budget_per_month: float | None = None
    over_budget: str = "alarm"  # or freeze, degrade

    @property
    def weight(self) -> float:
        """Its weight in sharing the rest: its guarantee, and at least a GPU."""
        return max(self.guarantee_gpus, 1.0)

    def without(self, gpus: float, price_per_hour: float) -> TenantTerms:
        """Returns the terms that remain when this much is used outside of the plan."""
        limit = Limit(_less(self.limit.gpus, gpus), _less(self.limit.price_per_hour, price_per_hour))
        return replace(self, guarantee_gpus=max(self.guarantee_gpus - gpus, 0.0), limit=limit)


def terms_of(declared: tuple[DeclaredObject, ...]) -> dict[str, TenantTerms]:
    """Returns the terms of every declared tenant."""
    return {item.name: _terms(item.spec) for item in declared if item.kind == "Tenant"}


def _terms(spec: Spec) -> TenantTerms:
    limit, budget = spec.get("limit") or {}, spec.get("budget") or {}
    return TenantTerms(
        guarantee_gpus=float((spec.get("guarantee") or {}).get("gpus", 0.0)),
        limit=Limit(limit.get("gpus"), limit.get("pricePerHour")),
        budget_per_month=budget.get("perMonth"),
        over_budget=spec.get("overBudget", "alarm"),
    )


def _less(limit: float | None, taken: float) -> float | None:
    return None if limit is None else max(limit - taken, 0.0)
