"""The price of a GPU, and what is paid whole: a single rule for the planner and the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Decimal

from app.manifests.model import WrittenSpec

NANO = 10**9
HIGHEST = 1e8  # an hour: the ledger's integers hold years of a large fleet at this price


def price_per_hour(gpu_type: WrittenSpec, region: str, purchase: str) -> float:
    """Returns a GPU's price: that of its (region, purchase) in `prices`, else pricePerHour."""
    for named, price in _list_named(gpu_type):
        if named == (region, purchase):
            return price
    usual: float = gpu_type["pricePerHour"]
    return usual


def pays_whole_node(pricing: str, purchase: str) -> bool:
    """Returns whether a whole node is paid while a service runs on it, by the policy's pricing and its purchase."""
    return pricing == "node" and purchase in ("onDemand", "spot")


def nano_per_hour(price: float) -> int:
    """Returns a price in whole billionths; half a billionth is rounded to even."""
    return int((Decimal(repr(price)) * NANO).to_integral_value(ROUND_HALF_EVEN))


def list_priced_purchases(gpu_type: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns every (region, purchase) for which a GPU type names a price."""
    return [named for named, _ in _list_named(gpu_type)]


def find_too_high(gpu_type: WrittenSpec) -> list[tuple[str, float]]:
    """Returns the prices too high to be accounted for: (field, price)."""
    found = [("pricePerHour", float(gpu_type["pricePerHour"]))]
    found += [(f"prices[{index}].perHour", price) for index, (_, price) in enumerate(_list_named(gpu_type))]
    return [(field, price) for field, price in found if price > HIGHEST]


def _list_named(gpu_type: WrittenSpec) -> Iterator[tuple[tuple[str, str], float]]:
    for price in gpu_type.get("prices") or ():
        yield (price.get("region", "default"), price.get("purchase", "onDemand")), price["perHour"]
