"""Checks what is asked of a campaign against what is declared: model, variant, node, GPU, batches, shares, clocks."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Connection

from agents.contract.campaigns import MOST_SETTINGS
from app.api.tokens import Label, Wire
from app.campaigns import guard
from app.campaigns.limits import ACCURACY_SHARE, BATCHES, MOST_MEASUREMENTS, SM_PERCENTS, grid
from app.manifests.model import Key, Kind
from app.problem import HttpProblem
from app.store.fleet import cordons
from app.store.fleet.campaigns import CampaignRequest
from app.store.world import objects
from app.store.world.objects import StoredObject
from app.world import declare

ID_BYTES = 5
LEAST_SECONDS = 3.0
Batches = Annotated[list[Annotated[int, Field(ge=1, le=256)]], Field(min_length=1, max_length=32)]
Shares = Annotated[list[Annotated[int, Field(ge=1, le=100)]], Field(min_length=1, max_length=32)]
Clocks = Annotated[list[Annotated[int, Field(ge=1, le=100_000)]], Field(min_length=1, max_length=8)]


class CampaignBody(Wire):
    """What to measure, where, and how exactly."""

    model: Label
    variant: Annotated[str, Field(max_length=63, description="May be left out where the model has only one")] = ""
    node: Label
    gpu: Annotated[int | None, Field(ge=0, le=1023, description="By default the GPU with the least on it")] = None
    accuracy: Annotated[
        float, Field(gt=0, le=1, description="Stops once the curve misses left-out measurements by no more")
    ] = ACCURACY_SHARE
    most: Annotated[int, Field(ge=2, le=MOST_SETTINGS, description="Most measurements")] = MOST_MEASUREMENTS
    batches: Annotated[Batches, Field(default_factory=lambda: list(BATCHES))]
    sm_percents: Annotated[Shares, Field(default_factory=lambda: list(SM_PERCENTS))]
    clocks_mhz: Annotated[Clocks | None, Field(description="By default the highest of the GPU type")] = None
    least_seconds: Annotated[float, Field(ge=0, le=60, description="At each setting; power needs about three")] = (
        LEAST_SECONDS
    )


def campaign_draft(connection: Connection, wanted: CampaignBody) -> dict[str, Any]:
    """Returns the campaign to store; raises HttpProblem, which names what is wrong and what is allowed."""
    variant = _variant(_declared(connection, Kind.MODEL, wanted.model), wanted.variant)
    runtime = variant.get("runtime")
    if not runtime:
        raise HttpProblem(
            "invalid", f"variant {variant['name']} of Model {wanted.model} has no runtime, so no node can start it"
        )
    node = _declared(connection, Kind.NODE, wanted.node)
    _check_template(node, runtime["template"])
    gpu_type = _declared(connection, Kind.GPU_TYPE, str(node.spec["gpuType"]))
    settings = grid(wanted.batches, wanted.sm_percents, _clocks(gpu_type, wanted.clocks_mhz))
    request = CampaignRequest(
        runtime["template"], runtime.get("args", {}), settings, wanted.accuracy, wanted.most, wanted.least_seconds
    )
    return {
        "campaign_id": f"c-{secrets.token_hex(ID_BYTES)}",
        "node": node.name,
        "gpu": _gpu(connection, node, wanted.gpu),
        "model": wanted.model,
        "variant": variant["name"],
        "gpu_type": gpu_type.name,
        "request": request,
    }


def _declared(connection: Connection, kind: Kind, name: str) -> StoredObject:
    found = objects.get(connection, Key(kind, "", name))
    if found is None:
        raise declare.missing(Key(kind, "", name))
    return found


def _variant(model: StoredObject, name: str) -> dict[str, Any]:
    variants: Any = model.spec["variants"]
    names = [variant["name"] for variant in variants]
    if not name and len(variants) > 1:
        raise HttpProblem("invalid", f"Model {model.name} has several variants; name one of {', '.join(names)}")
    for variant in variants:
        if name in ("", variant["name"]):
            return dict(variant)
    raise HttpProblem("invalid", f"Model {model.name} has no variant {name}; it has {', '.join(names)}")


def _check_template(node: StoredObject, template: str) -> None:
    for offered in (node.spec.get("templates"), node.status.get("templates")):
        if isinstance(offered, list) and template not in offered:
            some = ", ".join(map(str, offered)) or "none"
            raise HttpProblem("invalid", f"node {node.name} does not offer template {template}; it offers {some}")


def _clocks(gpu_type: StoredObject, wanted: list[int] | None) -> list[int]:
    listed: Any = gpu_type.spec["clocksMhz"]
    known = sorted({int(clock) for clock in listed})
    unknown = [clock for clock in wanted or () if clock not in known]
    if unknown:
        allowed = ", ".join(map(str, known))
        raise HttpProblem("invalid", f"{unknown[0]} MHz is no clock of GpuType {gpu_type.name}; allowed: {allowed}")
    return sorted({*(wanted or ()), known[-1]})


def _gpu(connection: Connection, node: StoredObject, wanted: int | None) -> int:
    """Returns the GPU to measure on: the one that is asked for, else one with the least on it."""
    count = int(str(node.spec["gpus"]))
    if wanted is not None and wanted >= count:
        raise HttpProblem("invalid", f"node {node.name} has GPUs 0..{count - 1}; there is no GPU {wanted}")
    noticed = [found for found in cordons.list_cordons(connection, node.name) if found.mode == cordons.RECLAIM]
    if noticed:
        raise HttpProblem("conflict", f"node {node.name} will be reclaimed, so nothing is measured there")
    if wanted is not None:
        return wanted
    return min(range(min(count, 1024)), key=lambda gpu: (len(guard.occupants(connection, node.name, gpu)), gpu))
