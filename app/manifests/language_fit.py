"""Finds services and profiles of language models that do not fit the model which they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from app.manifests.faults import ManifestFault
from app.manifests.model import JSON, Key, Kind, Manifest, WrittenSpec
from app.manifests.references import ReferenceWorld, admits, variants


def find_unfit(manifests: Iterable[Manifest], world: ReferenceWorld) -> list[ManifestFault]:
    """Returns what a Model's `llm` does not allow; a Model that is missing is reported elsewhere."""
    found: list[ManifestFault] = []
    for manifest in manifests:
        if manifest.kind not in (Kind.SERVICE, Kind.PROFILE):
            continue
        spec: WrittenSpec = manifest.spec
        model = world.spec(Key(Kind.MODEL, "", spec["model"]))
        if model is None or not admits(Kind.MODEL, model, manifest.tenant):
            continue
        unfit = _service(spec, model) if manifest.kind is Kind.SERVICE else _profile(spec, model)
        document = f"{manifest.document} {manifest.key}".strip()
        found += [ManifestFault(document, field, message, allowed, value) for field, message, allowed, value in unfit]
    return found


def _service(spec: WrittenSpec, model: Mapping[str, JSON]) -> Iterator[tuple[str, str, str, JSON]]:
    tokens = spec.get("tokens")
    if tokens is None:
        return
    sizes = [variant["llm"] for variant in variants(model).values() if "llm" in variant]
    if not sizes:
        message = f"no variant of Model {spec['model']} states llm, so that nothing is known of its tokens"
        yield "spec.slo.ttftMs", message, "latencyMs, or a Model whose variants state llm", spec["slo"].get("ttftMs")
        return
    most, total = max(size["contextTokens"] for size in sizes), tokens["input"]["mean"] + tokens["output"]["mean"]
    if total > most:
        message = f"a mean request of {total:g} tokens is over the contextTokens {most} of Model {spec['model']}"
        yield "spec.tokens", message, f"means of input and output that are {most} tokens together at most", None


def _profile(spec: WrittenSpec, model: Mapping[str, JSON]) -> Iterator[tuple[str, str, str, JSON]]:
    variant = variants(model).get(spec["variant"])
    if variant is None or "iteration" not in spec:
        return
    if "llm" not in variant:
        message = f"variant {spec['variant']} of Model {spec['model']} does not state llm"
        yield "spec.iteration", message, "latencyMs and memoryGib, or an llm in the variant", None
        return
    allowed = variant["llm"].get("parallel", [1])
    for degree in spec["iteration"]:
        if int(degree) not in allowed:
            message = f"variant {spec['variant']} of Model {spec['model']} cannot be spread over {degree} GPUs"
            yield f"spec.iteration.{degree}", message, f"its parallel: {', '.join(map(str, allowed))}", None
