"""Checks what is asked of a campaign against what is declared: model, variant, node, GPU, batches, shares, clocks."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated

import msgspec
from pydantic import Field
from sqlalchemy import Connection

from agents.contract.admitted import AdmittedEntry, find_not_admitted
from agents.contract.campaigns import MOST_NEIGHBOUR_MODELS, MOST_SETTINGS, OWN, CopySetting
from agents.contract.runtimes import OwnProbe, OwnRuntime, own_runtime
from app.api.tokens import Label, Wire
from app.campaigns import guard
from app.campaigns.limits import (
    ACCURACY_SHARE,
    BATCHES,
    BESIDE_BATCHES,
    BESIDE_SM_PERCENTS,
    MOST_MEASUREMENTS,
    SM_PERCENTS,
    grid,
    neighbour_settings,
)
from app.manifests.model import Free, Key, Kind
from app.problem import HttpProblem
from app.store.fleet import cordons
from app.store.fleet.campaigns import CampaignDraft, CampaignRequest, NeighbourModel
from app.store.world import objects
from app.store.world.objects import StoredObject
from app.world import declare

ID_BYTES = 5
LEAST_SECONDS = 3.0
BATCH_PLACEHOLDERS = ("{batch}", "{maxBatch}")
CLOSED = {"cordon": "is cordoned", "drain": "is being drained"}  # what an operator has done to keep campaigns off
MOST_NEIGHBOUR_SETTINGS = 2000
Batches = Annotated[list[Annotated[int, Field(ge=1, le=256)]], Field(min_length=1, max_length=32)]
Shares = Annotated[list[Annotated[int, Field(ge=1, le=100)]], Field(min_length=1, max_length=32)]
Clocks = Annotated[list[Annotated[int, Field(ge=1, le=100_000)]], Field(min_length=1, max_length=8)]


class CampaignBody(Wire):
    """The measurement that is requested: of what, where, and how exactly."""

    model: Label
    variant: Annotated[str, Field(max_length=63, description="May be left out where the model has only one")] = ""
    node: Label
    gpu: Annotated[int | None, Field(ge=0, le=1023, description="By default the GPU with the least on it")] = None
    accuracy: Annotated[
        float, Field(gt=0, le=1, description="Stops once the curve misses left-out measurements by no more")
    ] = ACCURACY_SHARE
    most: Annotated[int, Field(ge=2, le=MOST_SETTINGS, description="Most measurements")] = MOST_MEASUREMENTS
    neighbours: Annotated[
        list[Annotated[str, Field(max_length=127)]],
        Field(
            default_factory=list,
            max_length=MOST_NEIGHBOUR_MODELS,
            description="MODEL[/VARIANT], to measure it beside; none: alone",
        ),
    ]
    batches: Annotated[Batches | None, Field(description="By default 1..32; beside neighbours 1 and 8")] = None
    sm_percents: Annotated[Shares | None, Field(description="By default 10..100; beside neighbours 20, 40, 60")] = None
    clocks_mhz: Annotated[Clocks | None, Field(description="By default the highest of the GPU type")] = None
    least_seconds: Annotated[float, Field(ge=0, le=60, description="At each setting; power needs about three")] = (
        LEAST_SECONDS
    )


def campaign_draft(connection: Connection, wanted: CampaignBody) -> CampaignDraft:
    """Returns the campaign to store; raises HttpProblem, which names what is wrong and what is allowed."""
    node = _read_declared(connection, Kind.NODE, wanted.node)
    variant, runtime = _startable(connection, node, wanted.model, wanted.variant)
    gpu_type = _read_declared(connection, Kind.GPU_TYPE, str(node.spec["gpuType"]))
    neighbours = [_neighbour(connection, node, gpu_type.name, name) for name in wanted.neighbours]
    if neighbours:
        _check_counted(wanted.model, variant["name"], runtime)
        _check_profile(connection, wanted.model, variant["name"], gpu_type.name)
    own = own_runtime(runtime)
    request = CampaignRequest(
        OWN if own else runtime["template"],
        {} if own else runtime.get("args", {}),
        _settings(wanted, _clocks(gpu_type, wanted.clocks_mhz), own),
        wanted.accuracy,
        wanted.most,
        wanted.least_seconds,
        neighbours=tuple(neighbours),
        runtime=own,
        example=msgspec.convert(runtime["example"], OwnProbe) if own else None,
    )
    id_, gpu = f"c-{secrets.token_hex(ID_BYTES)}", _gpu(connection, node, wanted.gpu)
    return CampaignDraft(id_, node.name, gpu, wanted.model, variant["name"], gpu_type.name, request)


def _settings(wanted: CampaignBody, clocks_mhz: list[int], own: OwnRuntime | None) -> tuple[CopySetting, ...]:
    """Returns among which settings the campaign chooses; of a server whose words name no batch, only batch 1."""
    if not wanted.neighbours:
        batches: Sequence[int] = BATCHES if own is None or _names_batch(own) else (1,)
        return grid(wanted.batches or batches, wanted.sm_percents or SM_PERCENTS, clocks_mhz)
    if wanted.clocks_mhz:
        raise HttpProblem("invalid", "beside neighbours only the highest clock is measured; leave clocksMhz out")
    batches, shares = wanted.batches or BESIDE_BATCHES, wanted.sm_percents or BESIDE_SM_PERCENTS
    found = neighbour_settings(batches, shares, clocks_mhz[-1], len(wanted.neighbours))
    if not found:
        raise HttpProblem("invalid", f"no two of smPercents {', '.join(map(str, shares))} fit on one GPU together")
    if len(found) > MOST_NEIGHBOUR_SETTINGS:
        allowed = f"name fewer neighbours, batches or shares: {MOST_NEIGHBOUR_SETTINGS} are allowed"
        raise HttpProblem("invalid", f"that makes {len(found)} settings to choose from; {allowed}")
    return found


def _names_batch(own: OwnRuntime) -> bool:
    words = " ".join((*own.argv, *(own.env or {}).values()))
    return any(placeholder in words for placeholder in BATCH_PLACEHOLDERS)


def _neighbour(connection: Connection, node: StoredObject, gpu_type: str, text: str) -> NeighbourModel:
    """Returns a model to run beside the measured one."""
    model, _, name = text.partition("/")
    variant, runtime = _startable(connection, node, model, name)
    _check_counted(model, variant["name"], runtime)
    _check_profile(connection, model, variant["name"], gpu_type)
    return NeighbourModel(model, variant["name"], runtime["template"], runtime.get("args", {}))


def _startable(connection: Connection, node: StoredObject, model: str, name: str) -> tuple[Free, Free]:
    """Returns a variant that the node can start, and its runtime."""
    variant = _variant(_read_declared(connection, Kind.MODEL, model), name)
    runtime = variant.get("runtime")
    if not runtime:
        raise HttpProblem(
            "invalid", f"variant {variant['name']} of Model {model} has no runtime, so no node can start it"
        )
    own = own_runtime(runtime)
    if own is None:
        _check_template(node, runtime["template"])
    else:
        _check_own(node, f"variant {variant['name']} of Model {model}", own, runtime)
    return variant, runtime


def _check_own(node: StoredObject, subject: str, own: OwnRuntime, runtime: Free) -> None:
    """Raises HttpProblem where a campaign cannot start a user's own server, or has nothing to ask it."""
    if "example" not in runtime:
        raise HttpProblem("invalid", f"the runtime of {subject} has no example, a request with which it is measured")
    refused = find_not_admitted(msgspec.convert(node.status.get("admitted") or [], list[AdmittedEntry]), own)
    if refused:
        raise HttpProblem(
            "invalid", f"node {node.name} does not admit {subject}: {refused[0].field}: {refused[0].message}"
        )


def _check_counted(model: str, variant: str, runtime: Free) -> None:
    if "template" not in runtime:
        why = f"variant {variant} of Model {model} brings its own runtime, which is not known to count its batches"
        raise HttpProblem("invalid", f"{why}; only templates are measured beside neighbours")


def _check_profile(connection: Connection, model: str, variant: str, gpu_type: str) -> None:
    profiles = objects.read_objects_of_models(connection, Kind.PROFILE, [model])
    if not any((found.spec["variant"], found.spec["gpuType"]) == (variant, gpu_type) for found in profiles):
        why = f"{model}/{variant} has no Profile on GpuType {gpu_type}, which pressure and sensitivity belong to"
        raise HttpProblem("invalid", f"{why}; measure it alone first: gpuwright profile {model}/{variant} --on NODE")


def _read_declared(connection: Connection, kind: Kind, name: str) -> StoredObject:
    found = objects.get(connection, Key(kind, "", name))
    if found is None:
        raise declare.missing(Key(kind, "", name))
    return found


def _variant(model: StoredObject, name: str) -> Free:
    variants = model.spec["variants"]
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
    known = sorted({int(clock) for clock in gpu_type.spec["clocksMhz"]})
    unknown = [clock for clock in wanted or () if clock not in known]
    if unknown:
        allowed = ", ".join(map(str, known))
        raise HttpProblem("invalid", f"{unknown[0]} MHz is no clock of GpuType {gpu_type.name}; allowed: {allowed}")
    return sorted({*(wanted or ()), known[-1]})


def _gpu(connection: Connection, node: StoredObject, wanted: int | None) -> int:
    """Returns the GPU to measure on: the one that is asked for, else one with the least on it."""
    count = int(node.spec["gpus"])
    if wanted is not None and wanted >= count:
        raise HttpProblem("invalid", f"node {node.name} has GPUs 0..{count - 1}; there is no GPU {wanted}")
    marks = cordons.list_cordons(connection, node.name)
    if any(mark.mode in cordons.NOTICES for mark in marks):
        raise HttpProblem("conflict", f"node {node.name} is about to leave, so nothing is measured there")
    closed = {mark.gpu: CLOSED[mark.mode] for mark in marks if mark.mode in CLOSED}
    gpus = range(min(count, 1024)) if wanted is None else [wanted]
    usable = [gpu for gpu in gpus if not {gpu, cordons.ALL_GPUS} & closed.keys()]
    if not usable:
        place = node.name if wanted is None or cordons.ALL_GPUS in closed else f"{node.name}/{wanted}"
        why = closed.get(cordons.ALL_GPUS) or closed[gpus[0]]
        raise HttpProblem("conflict", f"{place} {why}, so nothing is measured there; first: gpuwright uncordon {place}")
    return min(usable, key=lambda gpu: (len(guard.occupants(connection, node.name, gpu)), gpu))
