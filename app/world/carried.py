"""Finds services whose rate the whole fleet could not carry, even if every GPU worked for that service alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from app.manifests.attainable import EXEC_MARGIN, PROFILE_QUANTILE, list_admitted_variants
from app.manifests.model import Key, Kind, WrittenSpec
from app.manifests.uncertain import profile_at
from app.store.world import objects
from app.store.world.gpu_counts import gpus_of_nodes
from app.world.consequences import POLICY
from app.world.decisions import Action, ObjectDecision


def find_uncarried(connection: Connection, decisions: Sequence[ObjectDecision], *, names_fleet: bool) -> dict[Key, str]:
    """Returns a warning for each new or changed service that asks for more than the fleet could carry.

    Callers who may not see the fleet do not get its figure.
    """
    new = {decision.key: decision.after for decision in decisions if decision.after is not None}
    changed = (Action.CREATED, Action.UPDATED)
    services = [
        new[decision.key] for decision in decisions
        if decision.key.kind is Kind.SERVICE and decision.action in changed and decision.after is not None
    ]  # fmt: skip
    services = [
        service for service in services if service.spec.get("ratePerSecond") and "latencyMs" in service.spec["slo"]
    ]
    if not services:
        return {}
    nodes = gpus_of_nodes(connection)
    nodes |= {
        key.name: (str(node.spec["gpuType"]), int(node.spec["gpus"]))
        for key, node in new.items() if key.kind is Kind.NODE
    }  # fmt: skip
    gpus = Counter[str]()
    for gpu_type, number in nodes.values():
        gpus[gpu_type] += number
    models = {str(service.spec["model"]) for service in services}
    keys = [POLICY, *(Key(Kind.MODEL, "", name) for name in models)]
    known = {**objects.get_many(connection, keys), **new}
    stored = {profile.key: profile for profile in objects.read_objects_of_models(connection, Kind.PROFILE, models)}
    stored |= {key: profile for key, profile in new.items() if key.kind is Kind.PROFILE}
    policy: WrittenSpec = known[POLICY].spec if POLICY in known else {}
    profiles: dict[str, list[WrittenSpec]] = {}
    for profile in stored.values():
        profiles.setdefault(str(profile.spec["model"]), []).append(profile.spec)
    found: dict[Key, str] = {}
    for service in services:
        model = known.get(Key(Kind.MODEL, "", str(service.spec["model"])))
        if model is None:
            continue
        each = most_per_gpu(service.spec, model.spec, profiles.get(model.name, ()), policy)
        most = sum(gpus[gpu_type] * rate for gpu_type, rate in each.items())
        asked = float(str(service.spec["ratePerSecond"]))
        if 0 < most < asked:
            carried = f"the fleet carries at most {most:,.0f} a second of it, with every GPU for it alone"
            found[service.key] = f"it asks for {asked:,.10g} requests a second; " + (
                carried if names_fleet else "that is more than the fleet could carry with every GPU for it alone"
            )
    return found


def most_per_gpu(
    service: WrittenSpec,
    model: WrittenSpec,
    profiles: Iterable[WrittenSpec],
    policy: WrittenSpec,
) -> dict[str, float]:
    """Returns the rate by GPU type that no GPU of it can exceed, however many instances share it.

    An instance of batch b at SM% s takes at most b / exec(s), and 100 / s of them share a GPU. Between two points of a
    profile exec is linear, so s * exec(s) is concave and least at one of the points.
    """
    admitted, types = list_admitted_variants(service, model), service.get("gpuTypes")
    quantile, margin = policy.get("profileQuantile", PROFILE_QUANTILE), policy.get("execMargin", EXEC_MARGIN)
    best: dict[str, float] = {}
    for profile in profiles:
        gpu_type = profile["gpuType"]
        if "latencyMs" not in profile or profile["variant"] not in admitted or (types and gpu_type not in types):
            continue
        for batch, curve in profile_at(profile, quantile)["latencyMs"].items():
            if min(curve.values()) * (1 + margin) > service["slo"]["latencyMs"]:
                continue
            rates = [int(batch) * 1000 / exec_ms * 100 / int(share) for share, exec_ms in curve.items()]
            best[gpu_type] = max(best.get(gpu_type, 0.0), *rates)
    return best
