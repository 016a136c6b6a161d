"""Validates documents into manifests, with every fault of every document at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from app.manifests import wording
from app.manifests.faults import ManifestFault, quote
from app.manifests.heading import read_heading
from app.manifests.kinds import SPECS
from app.manifests.model import JSON, Key, Kind, Manifest
from app.manifests.reader import Document
from app.manifests.tally import FaultTally

MAX_SPEC_VALUES = 50_000  # a profile of all 256 batches at all 100 shares has half of it
MAX_NULLS = 100  # reported for a spec
EMPTY_SPEC = frozenset({Kind.POLICY, Kind.TENANT, Kind.STATE})  # everything in them is optional
SHAPE = "a mapping of apiVersion, kind, metadata, spec"


class Examined(NamedTuple):
    """The valid manifests and the faults of an input, with the objects at fault."""

    manifests: list[Manifest]
    faults: list[ManifestFault]
    at_fault: frozenset[Key] | None = frozenset()  # None for a document that does not even name its object
    sketches: tuple[Manifest, ...] = ()  # of objects at fault: the fields of their specs that are right


def validate(
    documents: Sequence[Document], *, default_tenant: str = "default", offline: bool = False
) -> tuple[list[Manifest], list[ManifestFault]]:
    """Returns the valid manifests and all faults of the others."""
    found = examine(documents, default_tenant=default_tenant, offline=offline)
    return found.manifests, found.faults


def examine(documents: Sequence[Document], *, default_tenant: str = "default", offline: bool = False) -> Examined:
    """Validates each document on its own.

    A Service or Job without a tenant belongs to `default_tenant`; if that is empty, it is at fault.
    """
    tally = FaultTally()
    manifests: list[Manifest] = []
    sketches: list[Manifest] = []
    declared: dict[Key, str] = {}
    anonymous = False
    for document in documents:
        body, source, before = document.value, document.source, tally.count
        if not isinstance(body, dict):
            anonymous = True
            if tally.room <= 0:  # wording costs more than counting
                tally.unreported += 1
                continue
            tally.add(source, "", f"{quote(body)} is not a manifest", SHAPE, body)
            continue
        if body.get("kind") == "List" and "items" in body:
            anonymous = True
            tally.add(
                source, "kind", "a List of Kubernetes is not read", "its items, as documents with --- between", "List"
            )
            continue
        found = read_heading(body, source, default_tenant, offline, tally)
        spec = _spec(body, found.kind, found.called, tally) if found.kind else None
        if found.key is None:
            anonymous = True
            continue
        if found.key in declared:
            message = f"{found.key} is already declared in {declared[found.key]}"
            tally.add(found.called, "metadata.name", message, "each object once", found.key.name)
        declared.setdefault(found.key, source)
        if spec is not None and tally.count == before:
            manifests.append(Manifest(*found.key, spec, found.labels, source))
        elif spec is not None and tally.room > 0:  # else not every fault is at hand
            wrong = {_name_root(fault.field) for fault in tally.faults if fault.document == found.called}
            right_fields = {field: value for field, value in spec.items() if field not in wrong}
            sketches.append(Manifest(*found.key, right_fields, {}, source))
    right = {manifest.key for manifest in manifests}
    at_fault = None if anonymous else frozenset(declared.keys() - right)
    return Examined(manifests, tally.all(), at_fault, tuple(sketches) if tally.room > 0 else ())


def _name_root(field: str) -> str:
    """Returns `slo` of `spec.slo.latencyMs`."""
    return re.split(r"[.\[]", field.removeprefix("spec."), maxsplit=1)[0]


def _spec(body: Mapping[str, JSON], kind: Kind, called: str, tally: FaultTally) -> dict[str, JSON] | None:
    """Returns the spec as it was written if it has no fault."""
    if "spec" not in body and kind in EMPTY_SPEC:
        return {}
    spec = body.get("spec")
    if not isinstance(spec, dict):
        message = f"{quote(spec)} is not a mapping" if "spec" in body else "this field is required"
        tally.add(called, "spec", message, "a mapping", spec)
        return None
    model = SPECS[kind]
    nulls, counted = _nulls(spec, model.nullable)
    if counted > MAX_SPEC_VALUES and kind is not Kind.STATE:
        tally.add(called, "spec", f"the spec has {counted:,} values", f"at most {MAX_SPEC_VALUES:,}")
        return None
    for field in nulls:
        tally.add(called, field, "null is not allowed here", "leave the field out to use its default")
    for contradiction in model.contradictions(spec):
        tally.add(called, f"spec.{contradiction.field}", *contradiction[1:])
    try:
        model.model_validate(spec)
    except ValidationError as error:
        known = set(nulls)
        worded = wording.word_faults(kind, error, called, tally.room) if tally.room > 0 else []
        fresh = [fault for fault in worded if fault.field not in known]
        unworded = error.error_count() - len(worded) if len(worded) >= tally.room else 0
        tally.extend(fresh, len(fresh) + unworded)
    return spec


def _nulls(spec: Mapping[str, JSON], nullable: frozenset[str]) -> tuple[list[str], int]:
    """Returns the fields that must not be null and are, and the number of the spec's values."""
    found: list[str] = []
    counted = 0
    waiting: list[tuple[tuple[str | int, ...], Mapping[str, JSON] | list[JSON]]] = [((), spec)]
    while waiting:
        path, container = waiting.pop()
        for key, item in enumerate(container) if isinstance(container, list) else container.items():
            counted += 1
            if item is None:
                if (path or key not in nullable) and len(found) < MAX_NULLS:
                    found.append(wording.spell_path(("spec", *path, key)))
            elif item.__class__ is dict or item.__class__ is list:
                waiting.append(((*path, key), item))
    return found, counted
