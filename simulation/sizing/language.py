"""Sizes a fleet for language models: servers that compute prompts and answers, and a pool for each beside them.

A language model has whole GPUs of its own, so each is sized by itself, at the largest rate of its load, as if that
lasted. Its requests are simulated with the lengths that its Service declares. gpuwright runs the servers that do both;
two pools are advice, for engines that send keys and values from one server to another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.control.formulate.problem import build_problem, qualify_name
from app.manifests.model import Kind, Manifest
from app.manifests.offline import DeclaredFiles
from simulation.measure.rates import RateCurve
from simulation.sizing.links import NodeGpus, join_gpu_types
from simulation.sizing.moments import LEAST_RATE
from simulation.sizing.rental import RentalMarket, RentalRefused
from simulation.sizing.run import SizingReport
from solvers.planning.problem import Service
from solvers.pools.apart import ApartServers
from solvers.pools.confirm import ConfirmedServers
from solvers.pools.links import ServerLink
from solvers.pools.servers import ServerGroup, TogetherServers
from solvers.pools.size import ServerMarket, ServiceSize, size_service

Say = Callable[[str], None]


def size_language_models(
    declared: DeclaredFiles, curves: Mapping[str, RateCurve], link_gbit: float, say: Say
) -> list[ServiceSize]:
    """Returns the size of each service on a language model; services choose in order of priority, each from the
    GPUs that those before it left.

    Raises RentalRefused where nothing is rentable.
    """
    problem = build_problem(declared)
    services = [service for _, service in sorted(problem.services.items()) if service.tokens is not None]
    if not services:
        return []
    market = RentalMarket.of(declared)
    links = list_links(declared, link_gbit)
    left, found = dict(market.most), []
    for service in sorted(services, key=lambda service: -service.priority):
        curve = curves.get(service.name)
        rate = max(curve.rates) if curve else service.rate_per_second
        at_rate = replace(service, rate_per_second=max(rate, LEAST_RATE))
        say(f"{service.name}: servers for {at_rate.rate_per_second:g} requests a second, together and apart")
        sized = size_service(problem, at_rate, ServerMarket(dict(left), market.price_per_hour, links))
        found.append(sized)
        for gpu_type, gpus in count_gpus([sized]).items():
            left[gpu_type] -= gpus
    return found


def list_links(declared: DeclaredFiles, link_gbit: float) -> list[ServerLink]:
    """Returns the links of GPUs that may be rented, the quickest kinds first.

    Within a node there is NVLink, and PCIe where it joins more GPUs. How many GPUs a rented node has is known from
    declared Nodes of its type; without any, NVLink joins the GpuType's nvlinkGroup.
    """
    specs = {each.name: each.spec for each in declared.of(Kind.GPU_TYPE) if each.spec.get("rentable")}
    nodes = defaultdict(list)
    for node in declared.of(Kind.NODE):
        nodes[str(node.spec["gpuType"])].append(NodeGpus(int(node.spec["gpus"]), node.spec.get("nvlinkGroup")))
    return join_gpu_types(specs, nodes, link_gbit)


def leave_language_models_out(declared: DeclaredFiles, sized: Sequence[ServiceSize]) -> DeclaredFiles | None:
    """Returns the files without the services that are sized, and without the GPUs that they rent; None if none is left.

    Raises RentalRefused where they leave nothing to rent.
    """
    if not sized:
        return declared
    names, left = {each.service.name for each in sized}, _count_left(RentalMarket.of(declared), sized)
    kept = {}
    for key, manifest in declared.manifests.items():
        if key.kind is Kind.GPU_TYPE:
            kept[key] = replace(manifest, spec={**manifest.spec, "rentable": left.get(manifest.name, 0)})
        elif key.kind is not Kind.SERVICE or qualify_name(manifest) not in names:
            kept[key] = manifest
    rest = DeclaredFiles(kept)
    others = sorted(map(qualify_name, rest.of(Kind.SERVICE)))
    if others and not any(manifest.spec.get("rentable") for manifest in rest.of(Kind.GPU_TYPE)):
        raise RentalRefused(f"language models take all GPUs to rent: none is left for {', '.join(others)}")
    return rest if others else None


def count_gpus(sized: Sequence[ServiceSize]) -> dict[str, int]:
    """Returns the GPUs of the servers that do both, by type."""
    found: Counter[str] = Counter()
    for each in sized:
        found.update(each.together.servers.gpu_counts if each.together else {})
    return dict(found)


def add_language_models(report: SizingReport, declared: DeclaredFiles, sized: Sequence[ServiceSize]) -> SizingReport:
    """Returns the report of all other services with what language models rent."""
    gpus = dict(sorted((Counter(report.figures.get("gpus", {})) + Counter(count_gpus(sized))).items()))
    own = sum(each.together.price_per_hour for each in sized if each.together)
    figures = {
        "confirmedBySimulation": all(each.together for each in sized),
        **report.figures,
        "languageModels": write_figures(sized),
        "total": {"gpus": gpus, "costPerHour": round(own + (report.figures.get("costPerHour") or 0.0), 6)},
    }
    return SizingReport(figures, (*report.nodes, *_list_nodes(RentalMarket.of(declared), sized)))


def write_figures(sized: Sequence[ServiceSize]) -> list[dict[str, Any]]:
    """Returns the rows of `languageModels` in `gpuwright size --json`."""
    return [
        {
            "service": each.service.name,
            "ratePerSecond": round(each.service.rate_per_second, 6),
            "together": _write_together(each.together) if each.together else None,
            "parts": {"tokens": each.parts.tokens, **_write_together(each.parts.confirmed)} if each.parts else None,
            "apart": _write_apart(each.service, each.apart) if each.apart else None,
            "cheapest": each.cheapest or None,
            "savingPerHour": round(each.saving_per_hour, 6),
            "why": each.why,
        }
        for each in sized
    ]


def _list_nodes(market: RentalMarket, sized: Sequence[ServiceSize]) -> list[Manifest]:
    """Returns a node for each server that does both, with its GPUs."""
    nodes: list[Manifest] = []
    numbers = _count_left(market, sized)  # the GPUs that are left may be rented one by one, by the numbers before
    for each in sized:
        for group in each.together.servers.groups if each.together else ():
            for _ in range(group.count):
                numbers[group.server.gpu_type] += 1
                nodes.append(
                    market.wide_node(numbers[group.server.gpu_type], group.server.gpu_type, group.server.degree)
                )
    return nodes


def _count_left(market: RentalMarket, sized: Sequence[ServiceSize]) -> dict[str, int]:
    """Returns how many GPUs of each type may still be rented."""
    rented = count_gpus(sized)
    return {gpu_type: most - rented.get(gpu_type, 0) for gpu_type, most in market.most.items()}


def _write_together(confirmed: ConfirmedServers[TogetherServers]) -> dict[str, Any]:
    return _write_confirmed(confirmed) | {"servers": list(map(_write_group, confirmed.servers.groups))}


def _write_apart(service: Service, confirmed: ConfirmedServers[ApartServers]) -> dict[str, Any]:
    assert service.tokens
    servers, link = confirmed.servers, confirmed.servers.sent.link
    pools = {"prefill": servers.prefill, "decode": servers.decode}
    whole = {
        name: [replace(group, count=servers.cells * group.count, rate_per_second=servers.cells * group.rate_per_second)
               for group in pool]
        for name, pool in pools.items()
    }  # fmt: skip
    used = {group.server.gpu_type for group in (*servers.prefill, *servers.decode)}
    return _write_confirmed(confirmed) | {
        **{name: list(map(_write_group, pool)) for name, pool in whole.items()},
        "cells": servers.cells if link.most_gpus else None,
        "link": {
            "kind": link.kind,
            "gbitPerSecond": min(link.gbit_per_second[name] for name in used),
            "costPerHour": round(servers.sent.price_per_hour, 6),
        },
        "sentMs": round(service.tokens.lengths.input_mean * servers.sent_ms_per_token, 3),
    }


def _write_confirmed(confirmed: ConfirmedServers[Any]) -> dict[str, Any]:
    return {
        "costPerHour": round(confirmed.price_per_hour, 6),
        "gpus": confirmed.servers.gpu_counts,
        "plannedFactor": confirmed.factor,
    }


def _write_group(group: ServerGroup) -> dict[str, Any]:
    return {
        "gpuType": group.server.gpu_type,
        "gpus": group.server.degree,
        "count": group.count,
        "sequences": group.server.limits.sequences,
        "ratePerSecond": round(group.rate_per_second, 6),
    }
