"""Prices of nodes from a file: whole machines by type, region and purchase, GPUs of owned ones, and reservations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from app.manifests.prices import HIGHEST, nano_per_hour
from clusters.estate import GpuNode, NodePurchase
from clusters.objects import read_text
from clusters.yaml_text import YamlRefused, load_yaml, say_outside, show_value

CURRENCY = "USD"  # of a file that names none, as of the examples
PURCHASES = ("owned", "reserved", "onDemand", "spot")
MATCHED = ("node", "instanceType", "gpu", "region", "purchase")
RESERVED = ("instanceType", "region", "count", "perHour")
MOST_COUNT = 100_000


class PricesRefused(Exception):
    """A file of prices has faults: `faults` has a line for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(faults[0])
        self.faults = faults


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """One entry: which nodes it is for, and what a node or each of its GPUs costs an hour."""

    nano_per_hour: int
    is_per_gpu: bool
    node: str = ""
    instance_type: str = ""
    gpu: str = ""
    region: str = ""
    purchase: NodePurchase = ""
    as_of: str = ""

    def fits(self, node: GpuNode) -> bool:
        """Returns whether the entry is for the node; one that names no purchase is for every node but spot nodes.

        No label says that a node is owned, and few that it is reserved: an entry that says so, or that it is on
        demand, fits a node of which nothing is known.
        """
        wanted = (
            (self.node, node.name),
            (self.instance_type, node.instance_type),
            (self.gpu, node.product),
            (self.region, node.region),
        )
        is_paid_so = node.purchase == self.purchase if node.purchase else self.purchase != "spot"
        is_for_all = bool(self.node or self.purchase) or node.purchase != "spot"
        return is_for_all and (not self.purchase or is_paid_so) and all(mine in ("", its) for mine, its in wanted)


@dataclass(frozen=True, slots=True)
class ReservedMachines:
    """Machines of one type that are paid for, whether they run or not."""

    instance_type: str
    region: str  # empty: any
    count: int
    nano_per_hour: int  # of each

    def covers(self, node: GpuNode) -> bool:
        return node.instance_type == self.instance_type and self.region in ("", node.region) and node.purchase != "spot"


@dataclass(frozen=True, slots=True)
class PriceList:
    """The entries of a file, in its order: the first that fits a node is its price."""

    origin: str
    currency: str
    prices: tuple[ListedPrice, ...]
    reservations: tuple[ReservedMachines, ...] = ()

    def price_of(self, node: GpuNode) -> ListedPrice | None:
        return next((price for price in self.prices if price.fits(node)), None)


def read_examples() -> PriceList:
    """Returns the shipped example prices."""
    text = resources.files("clusters").joinpath("example_prices.yaml").read_text(encoding="utf-8")
    return read_prices(text, "example prices")


def read_prices(text: str, origin: str) -> PriceList:
    """Reads a file of prices; refuses it with every fault that it has."""
    try:
        found = load_yaml(text)
    except YamlRefused as refused:
        raise PricesRefused([f"{origin} is not YAML: {refused}"]) from None
    if not isinstance(found, dict):
        raise PricesRefused([f"{origin} is not a mapping with `prices`"])
    faults = [
        f"{origin}: there is no field {show_value(key)}"
        for key in found
        if key not in ("currency", "prices", "reservations")
    ]
    currency = found.get("currency", CURRENCY)
    if not isinstance(currency, str) or not re.fullmatch("[A-Z]{3}", currency):
        faults.append(f"{origin}: currency {show_value(currency)} is not an ISO 4217 code, as USD")
    prices = list(_each(found, "prices", faults, origin))
    reservations = list(_each(found, "reservations", faults, origin))
    if not prices and not reservations:
        faults.append(f"{origin} has neither `prices` nor `reservations`")
    listed = [_price(entry, f"{origin}: prices[{index}]", faults) for index, entry in prices]
    reserved = [_reservation(entry, f"{origin}: reservations[{index}]", faults) for index, entry in reservations]
    if faults:
        raise PricesRefused(faults)
    return PriceList(origin, currency, tuple(filter(None, listed)), tuple(filter(None, reserved)))


def _each(
    found: Mapping[str, Any], field: str, faults: list[str], origin: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    entries = found.get(field) or []
    if not isinstance(entries, list):
        faults.append(f"{origin}: {field} is not a list")
        return
    for index, entry in enumerate(entries):
        if isinstance(entry, dict):
            yield index, entry
        else:
            faults.append(f"{origin}: {field}[{index}] is not a mapping")


def _price(entry: Mapping[str, Any], where: str, faults: list[str]) -> ListedPrice | None:
    allowed = (*MATCHED, "perHour", "perGpuHour", "asOf")
    before = len(faults)
    faults += [f"{where}: there is no field {show_value(key)}" for key in entry if key not in allowed]
    faults += [f"{where}: {key} is not text" for key in MATCHED if not isinstance(entry.get(key, ""), str)]
    if not any(entry.get(key) for key in MATCHED):
        faults.append(f"{where} names no nodes; give one of {', '.join(MATCHED)}")
    purchase = entry.get("purchase", "")
    if purchase and purchase not in PURCHASES:
        faults.append(f"{where}: purchase {show_value(purchase)} is not one of {', '.join(PURCHASES)}")
    given = [key for key in ("perHour", "perGpuHour") if key in entry]
    if len(given) != 1:
        faults.append(f"{where} needs either perHour, of the node, or perGpuHour")
    nano = _nano(entry, given[0], where, faults) if given else None
    if len(faults) > before or nano is None:
        return None
    return ListedPrice(
        nano, given[0] == "perGpuHour", entry.get("node", ""), entry.get("instanceType", ""), entry.get("gpu", ""),
        entry.get("region", ""), purchase, read_text(entry, "asOf"),
    )  # fmt: skip


def _reservation(entry: Mapping[str, Any], where: str, faults: list[str]) -> ReservedMachines | None:
    before = len(faults)
    faults += [f"{where}: there is no field {show_value(key)}" for key in entry if key not in RESERVED]
    instance_type, region, count = entry.get("instanceType"), entry.get("region", ""), entry.get("count")
    if not isinstance(instance_type, str) or not instance_type or not isinstance(region, str):
        faults.append(f"{where} needs an instanceType, and its region is text")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_COUNT:
        faults.append(f"{where}: count {show_value(count)} is outside 1..{MOST_COUNT}")
    nano = _nano(entry, "perHour", where, faults)
    if len(faults) > before or nano is None:
        return None
    return ReservedMachines(str(instance_type), str(region), int(str(count)), nano)


def _nano(entry: Mapping[str, Any], field: str, where: str, faults: list[str]) -> int | None:
    value = entry.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= HIGHEST:
        faults.append(f"{where}: {field} {say_outside(value, f'0..{HIGHEST:g}')}")
        return None
    return nano_per_hour(value)
