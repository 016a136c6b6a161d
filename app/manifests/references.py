"""Finds what a manifest refers to, references to missing objects, and what a change to a Model breaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from app.manifests.faults import ManifestFault, nearest, quote
from app.manifests.model import JSON, Key, Kind, Manifest, WrittenSpec

MAX_COMPARED = 2_000  # names with which a misspelt name is compared
REFER_TO_MODELS = (Kind.PROFILE, Kind.SERVICE)
REFER_TO_GPU_TYPES = (Kind.NODE, Kind.POOL, Kind.PROFILE)
MAX_MEANT = 20  # faults that get a suggestion: comparing is slow, and a reader needs no more


class Reference(NamedTuple):
    """A reference to an object; `part` is a Model's variant, or empty."""

    key: Key
    part: str
    field: str


class ReferenceWorld(Protocol):
    """The objects that references may name: those declared already, and those being declared."""

    def spec(self, key: Key) -> Mapping[str, JSON] | None:
        """Returns the spec of an object; None if it does not exist."""

    def names(self, kind: Kind, tenant: str) -> Iterable[str]:
        """Returns names of cluster-wide objects that a tenant may know (empty: all), for suggestions."""


def list_references(manifest: Manifest) -> list[Reference]:
    """Returns every object that the manifest names, with the field that names it."""
    return list(_list_references(manifest))


def _list_references(manifest: Manifest) -> Iterator[Reference]:
    """Yields them; of a manifest at fault, whose spec may lack fields, those that are there."""
    spec: WrittenSpec = manifest.spec
    if manifest.kind in REFER_TO_MODELS and "model" in spec:
        model = Key(Kind.MODEL, "", spec["model"])
        yield Reference(model, "", "spec.model")
        if "variant" in spec:
            yield Reference(model, spec["variant"], "spec.variant")
        for index, variant in enumerate(spec.get("variants", ())):
            yield Reference(model, variant, f"spec.variants[{index}]")
    if manifest.kind in REFER_TO_GPU_TYPES and "gpuType" in spec:
        yield Reference(Key(Kind.GPU_TYPE, "", spec["gpuType"]), "", "spec.gpuType")
    if manifest.kind is Kind.NODE and "pool" in spec:
        yield Reference(Key(Kind.POOL, "", spec["pool"]), "", "spec.pool")
    if manifest.kind is Kind.SERVICE:
        for index, gpu_type in enumerate(spec.get("gpuTypes", ())):
            yield Reference(Key(Kind.GPU_TYPE, "", gpu_type), "", f"spec.gpuTypes[{index}]")
    if manifest.kind is Kind.JOB:
        for gpu_type in spec.get("profiles", ()):
            yield Reference(Key(Kind.GPU_TYPE, "", gpu_type), "", f"spec.profiles.{gpu_type}")


def find_missing(manifests: Iterable[Manifest], world: ReferenceWorld) -> list[ManifestFault]:
    """Returns every reference to a missing object in the manifests.

    A Model that does not admit the service's tenant is reported exactly like one that does not exist.
    """
    found: list[ManifestFault] = []
    for manifest in manifests:
        missing: set[Key] = set()
        for reference in _list_references(manifest):
            if reference.key in missing:
                continue
            spec = world.spec(reference.key)
            if spec is None or not admits(reference.key.kind, spec, manifest.tenant):
                missing.add(reference.key)
                known = world.names(reference.key.kind, manifest.tenant) if len(found) < MAX_MEANT else ()
                found.append(_unknown(manifest, reference.field, str(reference.key.kind), reference.key.name, known))
            elif reference.part and reference.part not in variants(spec):
                noun = f"variant of Model {reference.key.name}"
                found.append(_unknown(manifest, reference.field, noun, reference.part, variants(spec)))
    return found


def drop_faulty_references(manifests: Iterable[Manifest], at_fault: frozenset[Key]) -> list[Manifest]:
    """Returns the manifests without a reference to an object at fault, which is reported already and is not missing."""
    return [m for m in manifests if not any(reference.key in at_fault for reference in _list_references(m))]


def _unknown(manifest: Manifest, field: str, noun: str, name: str, known: Iterable[str]) -> ManifestFault:
    compared = sorted(known)[:MAX_COMPARED]
    allowed = ""
    if 0 < len(compared) <= 8:
        allowed = ", ".join(compared)
    return ManifestFault(
        document=f"{manifest.document} {manifest.key}".strip(),
        field=field,
        message=f"there is no {noun} named {quote(name)}",
        allowed=allowed or "the name of a declared object",
        value=name,
        suggestion=nearest(name, compared),
    )


def admits(kind: Kind, spec: Mapping[str, JSON], tenant: str) -> bool:
    """Returns True if a tenant may use the object; a caller without a tenant may use everything."""
    tenants = spec.get("tenants") if kind is Kind.MODEL else None
    return not tenant or not isinstance(tenants, list) or tenant in tenants


def variants(spec: WrittenSpec) -> dict[str, WrittenSpec]:
    """Returns a Model's variants by name."""
    return {variant["name"]: variant for variant in spec["variants"]}


class ProfileOf(NamedTuple):
    """The subject of a Profile; each subject has at most one Profile."""

    model: str
    variant: str
    gpu_type: str


def profile_of(spec: WrittenSpec) -> ProfileOf:
    return ProfileOf(spec["model"], spec["variant"], spec["gpuType"])


def find_clashes(manifests: Iterable[Manifest], there: Mapping[ProfileOf, str]) -> list[ManifestFault]:
    """Returns profiles that measure the same as another; `there` holds the names of those already declared.

    The caller leaves out of `there` the profiles that `manifests` declare again or that are being deleted.
    """
    holders = dict(there)
    found: list[ManifestFault] = []
    for manifest in manifests:
        if manifest.kind is not Kind.PROFILE:
            continue
        measured = profile_of(manifest.spec)
        holder = holders.setdefault(measured, manifest.name)
        if holder != manifest.name:
            found.append(
                ManifestFault(
                    document=f"{manifest.document} {manifest.key}".strip(),
                    field="spec",
                    message=f"Profile {holder} already measures model {measured.model}, variant"
                    f" {measured.variant}, GPU type {measured.gpu_type}",
                    allowed="one Profile for each combination of them",
                    value=holder,
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class Referrer:
    """An object that refers to the Model, and the variant that it names (empty: the Model itself)."""

    key: Key
    part: str = ""


class Broken(NamedTuple):
    """A referrer whose reference a Model's new spec breaks."""

    referrer: Referrer
    why: str  # a sentence without the referrer's name


def find_broken(spec: Mapping[str, JSON], referrers: Sequence[Referrer]) -> list[Broken]:
    """Returns the referrers that a Model's new spec breaks: their variant is gone, or their tenant not admitted."""
    names = variants(spec)
    broken: list[Broken] = []
    for referrer in referrers:
        if referrer.part and referrer.part not in names:
            broken.append(Broken(referrer, f"variant {referrer.part} is gone"))
        elif not referrer.part and not admits(Kind.MODEL, spec, referrer.key.tenant):
            broken.append(Broken(referrer, "its tenant is no longer admitted"))
    return broken
