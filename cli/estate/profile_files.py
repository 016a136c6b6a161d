"""Profiles of files as a planner has them; GPU types that only the catalogue has, and Models, are filled in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agents.contract.gpus import read_sheets
from app.control.formulate.problem import build_problem
from app.manifests.faults import ManifestsRefused
from app.manifests.model import API_VERSION, Kind
from app.manifests.offline import Input, load
from app.manifests.reader import Media, read
from cli import sources
from cli.catalogue import manifest
from cli.declared import refusal
from clusters.certified.posing import KnownProfiles


def read_profiles(words: Iterable[str]) -> KnownProfiles:
    """Returns the profiles of files and folders; Failed with every fault."""
    inputs = [Input(name, text.encode(), _media(name)) for name, text in sources.read(words)]
    try:
        values = [document.value for each in inputs for document in read(each.data, each.media, source=each.source)]
        missing = list(_missing([value for value in values if isinstance(value, dict)]))
        filled = [Input("the catalogue", json.dumps(each).encode(), "json") for each in missing]
        loaded = load([*inputs, *filled])
        problem = build_problem(loaded)
    except ManifestsRefused as refused:
        raise refusal(refused, " and ".join(words)) from None
    types = {product: sheet.name for sheet in read_sheets().values() for product in sheet.products}
    specs = {each.name: each.spec for each in loaded.of(Kind.GPU_TYPE)}
    return KnownProfiles(problem.gpu_types, problem.models, tuple(problem.profiles.values()), types, specs)


def _media(name: str) -> Media:
    return "json" if name.endswith(".json") else "yaml"


def _missing(documents: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields what Profiles refer to and the files do not declare."""
    declared: set[tuple[str, str]] = set()
    profiles = []
    for document in documents:
        metadata, spec = document.get("metadata"), document.get("spec")
        if isinstance(metadata, dict) and isinstance(spec, dict):
            declared.add((str(document.get("kind")), str(metadata.get("name"))))
            if document.get("kind") == "Profile":
                profiles.append(spec)
    by_name = read_sheets()
    for name in sorted({str(spec.get("gpuType")) for spec in profiles} & by_name.keys()):
        if ("GpuType", name) not in declared:
            yield manifest(by_name[name])
    variants: dict[str, set[str]] = {}
    for spec in profiles:
        variants.setdefault(str(spec.get("model")), set()).add(str(spec.get("variant")))
    for model, names in sorted(variants.items()):
        if ("Model", model) not in declared:
            spec = {"variants": [{"name": name, "accuracy": 1} for name in sorted(names)]}
            yield {"apiVersion": API_VERSION, "kind": "Model", "metadata": {"name": model}, "spec": spec}
