"""Turns the policy's objective into prices of one account: of money, of a kilowatt-hour, and of unserved requests."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from app.control.domain.specs import Spec
from app.manifests.fleet import PolicySpec
from app.manifests.goals import row_at
from solvers.planning.problem import Policy, Service

GRAMS_PER_TONNE = 1e6
GRAMS_PER_KG = 1e3
LEAST_MONEY_WEIGHT = 1e-6  # where money does not count: of plans alike, the cheaper one is better
WEIGHTS = {
    "money": {"money": 1.0},
    "energy": {"money": 0.0, "energyKwh": 1.0},
    "throughput": {"money": 0.0},  # the fleet is paid anyway
}


def price_policy(policy: Policy, spec: Spec, now: datetime | None) -> Policy:
    """Returns the policy with what its objective makes of money and of a kilowatt-hour at this time."""
    weights = _weights(spec)
    money = max(float(weights.get("money", 1.0)), LEAST_MONEY_WEIGHT)
    grams = grams_per_kwh(spec, now)
    carbon_price = (spec.get("carbon") or {}).get("pricePerTonne", 0.0) / GRAMS_PER_TONNE * grams
    of_energy = weights.get("energyKwh", 0.0) + weights.get("carbonKg", 0.0) * grams / GRAMS_PER_KG
    kwh = money * (policy.energy_price_per_kwh + carbon_price) + of_energy
    return replace(policy, money_weight=money, energy_price_per_kwh=kwh)


def grams_per_kwh(spec: Spec, now: datetime | None) -> float:
    """Returns the grams of CO2 equivalent that a kilowatt-hour emits at this time; 0 where no intensity is declared."""
    carbon = spec.get("carbon")
    return row_at(carbon["intensity"], now)[1] if carbon else 0.0


def intensity_since(spec: Spec, now: datetime) -> datetime | None:
    """Returns since when this time's carbon intensity holds; None where none is declared."""
    carbon = spec.get("carbon")
    return row_at(carbon["intensity"], now)[0] if carbon else None


def counts_shares(spec: Spec) -> bool:
    """Returns True where each service's unserved rate counts as a share of its rate."""
    return bool(spec.get("objective") == "throughput")


def count_by_share(service: Service) -> Service:
    """Returns the service with its unserved rate counted as a share of its rate."""
    return replace(service, unserved_weight=1.0 / service.rate_per_second)


def _weights(spec: Spec) -> Spec:
    objective = spec.get("objective", PolicySpec.model_fields["objective"].default)
    return WEIGHTS[objective] if isinstance(objective, str) else objective
