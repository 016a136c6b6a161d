"""Finds services whose LoRA adapters no server of their model holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from app.manifests.attainable import list_admitted_variants
from app.manifests.faults import ManifestFault
from app.manifests.model import JSON, Key, Kind, Manifest, WrittenSpec
from app.manifests.references import ReferenceWorld, admits, variants
from app.manifests.shipped_templates import SHIPPED


def find_unheld(
    manifests: Iterable[Manifest], world: ReferenceWorld, profiles: Sequence[WrittenSpec]
) -> list[ManifestFault]:
    """Returns services whose adapters no server of their model holds; `profiles` are all of those that are known."""
    found: list[ManifestFault] = []
    for manifest in manifests:
        spec: WrittenSpec = manifest.spec
        if manifest.kind is not Kind.SERVICE or not spec.get("adapters"):
            continue
        model = world.spec(Key(Kind.MODEL, "", spec["model"]))
        if model is None or not admits(Kind.MODEL, model, manifest.tenant):
            continue
        document = f"{manifest.document} {manifest.key}".strip()
        usable = list_admitted_variants(spec, model)
        faults = [*_find_unfit_names(spec, model), *_find_unable_templates(usable, model)]
        faults += _find_too_small(spec, _list_usable(spec, usable, profiles))
        found += [ManifestFault(document, field, message, allowed) for field, message, allowed in faults]
    return found


def _find_unfit_names(spec: WrittenSpec, model: Mapping[str, JSON]) -> Iterator[tuple[str, str, str]]:
    served = {str(spec["model"])}
    for variant in variants(model).values():
        args = (variant.get("runtime") or {}).get("args")
        given = args if isinstance(args, dict) else {}
        served |= {str(given.get("name", "model")), str(given.get("model", "model"))}
    for index, adapter in enumerate(spec["adapters"]):
        if adapter["name"] in served:
            message = f"requests that name {adapter['name']} get the model without an adapter"
            yield f"spec.adapters[{index}].name", message, "a name that is not the model's"


def _find_unable_templates(usable: Sequence[str], model: Mapping[str, JSON]) -> Iterator[tuple[str, str, str]]:
    able = ", ".join(name for name, known in SHIPPED.items() if known.holds_adapters)
    for name in usable:
        runtime = variants(model)[name].get("runtime")
        template = runtime.get("template") if runtime else None
        if runtime and template is None:
            yield "spec.adapters", f"variant {name} has a runtime of its own, which loads no adapters", able
        elif template in SHIPPED and not SHIPPED[template].holds_adapters:
            yield "spec.adapters", f"variant {name}: template {template}, as it ships, holds no adapters", able


def _list_usable(spec: WrittenSpec, usable: Sequence[str], profiles: Sequence[WrittenSpec]) -> list[WrittenSpec]:
    types = spec.get("gpuTypes")
    return [
        each
        for each in profiles
        if "iteration" in each
        and each["model"] == spec["model"]
        and each["variant"] in usable
        and (types is None or each["gpuType"] in types)
    ]


def _find_too_small(spec: WrittenSpec, usable: Sequence[WrittenSpec]) -> Iterator[tuple[str, str, str]]:
    """Yields why none of the profiles that the service may use holds its adapters; nothing where none is declared."""
    count, rank = len(spec["adapters"]), max(adapter["rank"] for adapter in spec["adapters"])
    known = [profile["adapters"] for profile in usable if "adapters" in profile]
    if not usable or any(held["places"] >= count and held["maxRank"] >= rank for held in known):
        return
    if not known:
        message = f"no Profile of Model {spec['model']} that it may use states adapters, so that their cost is unknown"
        yield "spec.adapters", message, "a Profile with adapters: {places, maxRank, placeGib, slowdown}"
        return
    offered = "; ".join(sorted({f"{held['places']} of rank {held['maxRank']}" for held in known}))
    message = f"no Profile of Model {spec['model']} that it may use has places for {count} adapters of rank {rank}"
    yield "spec.adapters", message, f"at most {offered}"
