"""A load of a few minutes on two services whose peaks do not coincide, and GPUs of two types to rent for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.manifests.offline import DeclaredFiles
from simulation.measure.rates import RateCurve, read_rates
from simulation.world import read_documents
from tests.simulation.worlds import Document, document, gpu_type, model, node, policy, profile, service

HEADER = "seconds,service,ratePerSecond\n"
SERVICES = ("shop/a", "shop/b")
# a: high, then low; b: low, then high
ROWS = "0,shop/a,520\n60,shop/a,520\n180,shop/a,320\n0,shop/b,300\n60,shop/b,300\n180,shop/b,420\n"


def rentable(kind: Document, gpus: int, **more: Any) -> Document:
    return kind | {"spec": kind["spec"] | {"rentable": gpus} | more}


def documents(small: int = 2, big: int = 2, owned: int = 0) -> list[Document]:
    """Types `small` and `big`, which is twice as fast, and services a and b on them."""
    found = [rentable(gpu_type("small", 1.0), small), rentable(gpu_type("big", 2.5), big), policy()]
    found += [node(f"own-{number}", 1, "small") for number in range(owned)]
    for name, rate in (("a", 5.0), ("b", 7.0)):
        found += [
            model(name),
            profile(name, "small", startSeconds=3),
            profile(name, "big", speed=2.0, startSeconds=3),
            service(name, rate),
        ]
    return found


def world(**given: int) -> DeclaredFiles:
    return read_documents(documents(**given))


def curves(rows: str = ROWS) -> dict[str, RateCurve]:
    return read_rates(HEADER + rows, "rates.csv", SERVICES)


def fleet_of(counts: Mapping[str, int], rates: Mapping[str, float], owned: int = 0) -> DeclaredFiles:
    """The files that someone writes who has rented these GPUs: nodes of one GPU, and rates by service."""
    found = [entry for entry in documents(owned=owned) if entry["kind"] != "Service"]
    found += [node(f"mine-{kind}-{number}", 1, kind) for kind, count in counts.items() for number in range(count)]
    found += [service(name.partition("/")[2], rate) for name, rate in rates.items()]
    return read_documents([document("Tenant", "shop", {}), *found])
