"""Finds services whose rate the fleet could not carry within the SLO, even if every GPU worked for them alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import Connection

from app.manifests.attainable import EXEC_MARGIN, PROFILE_QUANTILE, list_admitted_variants
from app.manifests.fleet import PolicySpec
from app.manifests.model import Key, Kind, WrittenSpec
from app.manifests.uncertain import profile_at
from app.store.world import objects
from app.store.world.gpu_counts import gpus_of_nodes
from app.world.consequences import POLICY
from app.world.decisions import Action, ObjectDecision

SAME_MODEL_PER_GPU: int = PolicySpec.model_fields["same_model_per_gpu"].default
LONGEST_SLO_FACTOR = 100.0  # of the SLO searched
CLOSE_FACTOR = 1.001  # the search for an SLO ends within this factor

# The rate that an instance carries: of its batch, its exec in ms, the SLO in ms and its percentile.
InstanceRate: TypeAlias = Callable[[int, float, float, float], float]


def find_uncarried(
    connection: Connection, decisions: Sequence[ObjectDecision], instance_rate: InstanceRate, *, names_fleet: bool
) -> dict[Key, str]:
    """Returns a warning for each new or changed service that asks for more than the fleet could carry within its SLO.

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
        for key, node in new.items() if key.kind is Kind.NODE and "pool" not in node.spec
    }  # fmt: skip
    nodes |= {
        f"pool/{key.name}": (str(pool.spec["gpuType"]), int(pool.spec["max"]) * int(pool.spec["gpusPerNode"]))
        for key, pool in new.items() if key.kind is Kind.POOL
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
        most_of = FleetRate(service.spec, model.spec, profiles.get(model.name, ()), policy, gpus)
        if why := _find_shortfall(most_of, instance_rate, names_fleet=names_fleet):
            found[service.key] = why
    return found


@dataclass(frozen=True, slots=True)
class FleetRate:
    """What a service's rate on the whole fleet depends on."""

    service: WrittenSpec
    model: WrittenSpec
    profiles: Iterable[WrittenSpec]
    policy: WrittenSpec
    gpus: Mapping[str, int]  # by type

    def find_most(self, slo_ms: float, instance_rate: InstanceRate) -> float:
        """Returns the rate that the fleet cannot exceed within such an SLO."""
        service = {**self.service, "slo": {**self.service["slo"], "latencyMs": slo_ms}}
        each = most_per_gpu(service, self.model, self.profiles, self.policy, instance_rate)
        return sum(self.gpus[gpu_type] * rate for gpu_type, rate in each.items())


def _find_shortfall(fleet: FleetRate, instance_rate: InstanceRate, *, names_fleet: bool) -> str:
    """Returns how much of the rate fits within the SLO, and which SLO the rate needs; empty if all of it may fit."""
    slo_ms, asked = float(fleet.service["slo"]["latencyMs"]), float(str(fleet.service["ratePerSecond"]))
    most = fleet.find_most(slo_ms, instance_rate)
    longest = slo_ms * LONGEST_SLO_FACTOR
    ample = fleet.find_most(longest, instance_rate)
    if most >= asked or not ample:
        return ""
    wish = f"it asks for {asked:,.10g} requests a second"
    if not names_fleet:
        return f"{wish}; that is more than the fleet could carry within its SLO with every GPU for it alone"
    carried = f"{wish}; the fleet carries at most {most:,.0f} a second of it, with every GPU for it alone"
    if ample < asked:
        return carried
    low, high = slo_ms, longest
    while high > low * CLOSE_FACTOR:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fleet.find_most(middle, instance_rate) >= asked else (middle, high)
    return f"{carried} and within its SLO of {slo_ms:g} ms; this rate needs an SLO of {low:.4g} ms or more"


def most_per_gpu(
    service: WrittenSpec,
    model: WrittenSpec,
    profiles: Iterable[WrittenSpec],
    policy: WrittenSpec,
    instance_rate: InstanceRate,
) -> dict[str, float]:
    """Returns the rate by GPU type that no GPU of it can exceed, however many instances share it.

    An instance of batch b at SM% s takes at most b / exec(s), and 100 / s of them share a GPU. Between two points of a
    profile exec is linear, so s * exec(s) is concave and least at one of the points. Nor can it exceed what as many
    instances as may share a GPU would carry within the SLO, if each had the fastest execution.
    """
    admitted, types = list_admitted_variants(service, model), service.get("gpuTypes")
    quantile, margin = policy.get("profileQuantile", PROFILE_QUANTILE), policy.get("execMargin", EXEC_MARGIN)
    together = int(policy.get("sameModelPerGpu", SAME_MODEL_PER_GPU))
    slo = service["slo"]
    best: dict[str, float] = {}
    for profile in profiles:
        gpu_type = profile["gpuType"]
        if "latencyMs" not in profile or profile["variant"] not in admitted or (types and gpu_type not in types):
            continue
        for batch, curve in profile_at(profile, quantile)["latencyMs"].items():
            fastest_ms = min(curve.values())
            if fastest_ms * (1 + margin) > slo["latencyMs"]:
                continue
            rates = [int(batch) * 1000 / exec_ms * 100 / int(share) for share, exec_ms in curve.items()]
            each = instance_rate(int(batch), fastest_ms * (1 + margin), slo["latencyMs"], slo["percentile"])
            best[gpu_type] = max(best.get(gpu_type, 0.0), min(max(rates), together * each))
    return best
