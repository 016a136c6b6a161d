"""Books declarations as dated rows of prices and of GPUs that are paid for, in the declaration's own transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Connection

from app.manifests.model import Key, Kind, WrittenSpec
from app.manifests.prices import list_priced_purchases, nano_per_hour, price_per_hour
from app.store.database import clock, versions
from app.store.money import prices
from app.store.money.prices import Priced, PricedGpus
from app.store.world import objects

BookedSpecs: TypeAlias = Mapping[str, WrittenSpec | None]  # by name; None: deleted


def book(connection: Connection, nodes: BookedSpecs, gpu_types: BookedSpecs, now: datetime) -> None:
    """Books nodes and GPU types as they are declared from now on; None for those that were deleted."""
    if not nodes and not gpu_types:
        return
    types = _types(connection, nodes, gpu_types)
    wanted = {
        name: _price_owned(name, spec, types[spec["gpuType"]]) for name, spec in nodes.items() if spec is not None
    }
    known = prices.nodes_with(connection, gpu_types) if gpu_types else []
    for gpus in known:
        kind = types.get(gpus.gpu_type)
        if gpus.node not in nodes and kind is not None:
            wanted[gpus.node] = gpus._replace(memory_gib=float(kind["memoryGib"]))
    prices.record_ownership(connection, nodes.keys() | wanted.keys(), [wanted[name] for name in sorted(wanted)], now)
    named = types.keys() | gpu_types.keys()
    ways = {way for way in prices.purchase_ways(connection, named) if way[0] in types}
    ways |= {(name, *way) for name, kind in types.items() for way in list_priced_purchases(kind)}
    rates = [Priced(*way, nano_per_hour(price_per_hour(types[way[0]], way[1], way[2]))) for way in sorted(ways)]
    prices.record_prices(connection, named, rates, now)


def book_missing(connection: Connection) -> int:
    """Books nodes that were declared before there was a ledger from now on; returns how many."""
    if not prices.list_unowned_nodes(connection):
        return 0
    versions.lock(connection, "object")
    missing = [Key(Kind.NODE, "", name) for name in prices.list_unowned_nodes(connection)]
    found = objects.get_many(connection, missing)
    book(connection, {key.name: stored.spec for key, stored in found.items()}, {}, clock.now(connection))
    return len(found)


def _types(connection: Connection, nodes: BookedSpecs, gpu_types: BookedSpecs) -> dict[str, WrittenSpec]:
    """Returns the specs of these GPU types as they are declared now."""
    wanted = {str(spec["gpuType"]) for spec in nodes.values() if spec is not None} - gpu_types.keys()
    there = objects.get_many(connection, [Key(Kind.GPU_TYPE, "", name) for name in sorted(wanted)])
    found = {key.name: stored.spec for key, stored in there.items()}
    return found | {name: spec for name, spec in gpu_types.items() if spec is not None}


def _price_owned(name: str, spec: WrittenSpec, gpu_type: WrittenSpec) -> PricedGpus:
    return PricedGpus(
        node=name,
        gpus=spec["gpus"],
        gpu_type=spec["gpuType"],
        region=spec.get("region", "default"),
        purchase=spec.get("purchase", "onDemand"),
        memory_gib=float(gpu_type["memoryGib"]),
    )
