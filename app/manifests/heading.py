"""Reads the heading of a manifest: apiVersion, kind, and the metadata that names it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.manifests.faults import escape, nearest, quote
from app.manifests.model import API_VERSION, JSON, STORED, TENANTED, Key, Kind
from app.manifests.tally import FaultTally
from app.manifests.words import LABEL, WORD

SET_LABEL = "gpuwright.io/set"  # of what was applied as a set
MAX_LABELS = 64  # beside that one

FIELDS = ("apiVersion", "kind", "metadata", "spec")
METADATA = ("name", "tenant", "labels")
# `get` adds these to what was declared; `apply` ignores them.
SHOWN = frozenset({"status"})
SHOWN_METADATA = frozenset({"uid", "generation", "resourceVersion", "createdAt", "updatedAt"})
KINDS: Mapping[str, Kind] = {str(kind): kind for kind in Kind}

NAME = re.compile(LABEL)
NAME_ALLOWED = "1..63 characters a-z, 0-9 and -, beginning and ending with a letter or digit"
LONGEST_SPELLED = 63
LABEL_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{WORD}")
LABEL_KEY_ALLOWED = "[prefix/]name of letters, digits, -, _ and ., the name 1..63 of them"
LABEL_VALUE = re.compile(rf"(?:{WORD})?")
LABEL_VALUE_ALLOWED = "nothing, or 1..63 letters, digits, -, _ and ., beginning and ending with a letter or digit"


@dataclass(frozen=True, slots=True)
class Heading:
    """The readable part of a heading; `key` is set only if kind, tenant and name are valid."""

    kind: Kind | None
    called: str  # the document's name in faults: `fleet.yaml#3 Service shop/search`
    key: Key | None = None
    labels: dict[str, str] = field(default_factory=dict)


def read_heading(
    body: Mapping[str, JSON], source: str, default_tenant: str, offline: bool, tally: FaultTally
) -> Heading:
    """Reads the heading and tallies all its faults."""
    kind = _kind(body, source, offline, tally)
    metadata = body.get("metadata")
    called = _name_manifest(source, kind, metadata, default_tenant)
    tally.unknown(called, "", body, FIELDS, SHOWN)
    if body.get("apiVersion") != API_VERSION:
        version = body.get("apiVersion")
        is_given = "apiVersion" in body
        message = f"{quote(version)} is not a version of this API" if is_given else "this field is required"
        tally.add(called, "apiVersion", message, API_VERSION, version)
    if kind is Kind.STATE and "metadata" not in body:
        return Heading(kind, called, Key(kind, "", "state"))
    if not isinstance(metadata, dict):
        message = f"{quote(metadata)} is not a mapping" if "metadata" in body else "this field is required"
        tally.add(called, "metadata", message, "a mapping with a name", metadata)
        return Heading(kind, called)
    tally.unknown(called, "metadata.", metadata, METADATA, SHOWN_METADATA)
    name = _name(metadata, "name", called, tally)
    if kind is Kind.POLICY and name not in (None, "default"):
        tally.add(called, "metadata.name", f"the only Policy is named `default`, not {quote(name)}", "default", name)
    tenant = _tenant(metadata, kind, called, default_tenant, tally)
    labels = _labels(metadata["labels"], called, tally) if "labels" in metadata else {}
    if kind is None or name is None or tenant is None:
        return Heading(kind, called, None, labels)
    return Heading(kind, called, Key(kind, tenant, name), labels)


def _kind(body: Mapping[str, JSON], source: str, offline: bool, tally: FaultTally) -> Kind | None:
    declared = body.get("kind")
    known = tuple(Kind) if offline else STORED
    allowed = ", ".join(known)
    if "kind" not in body:
        tally.add(source, "kind", "this field is required", allowed)
        return None
    kind = KINDS.get(declared) if isinstance(declared, str) else None
    if kind is None:
        meant = nearest(declared, known) if isinstance(declared, str) and tally.room > 0 else ""
        tally.add(source, "kind", f"there is no kind {quote(declared)}", allowed, declared, meant)
    elif kind not in known:
        tally.add(source, "kind", "State is for solving files offline; a server knows what runs", allowed, declared)
        return None
    return kind


def _name(metadata: Mapping[str, JSON], which: str, called: str, tally: FaultTally) -> str | None:
    name = metadata.get(which)
    if isinstance(name, str) and NAME.fullmatch(name):
        return name
    if which not in metadata:
        message = "this field is required"
    elif isinstance(name, str):
        message = f"{quote(name)} is not a valid name"
    else:
        message = f"{quote(name)} is not a string" + _hint(name)
    meant = _spell_name(name) if isinstance(name, str) else ""
    tally.add(called, f"metadata.{which}", message, NAME_ALLOWED, name, meant)
    return None


def _spell_name(text: str) -> str:
    """Returns the valid name that is nearest to a text; empty where it is not clear."""
    if len(text) > LONGEST_SPELLED or not text.isascii():
        return ""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return found if NAME.fullmatch(found) else ""


def _tenant(
    metadata: Mapping[str, JSON], kind: Kind | None, called: str, default_tenant: str, tally: FaultTally
) -> str | None:
    """Returns the tenant; empty for a cluster-wide kind, None if it is missing or invalid."""
    if kind not in TENANTED:
        if kind is not None and "tenant" in metadata:
            message = f"a {kind} has no tenant; leave the field out"
            tally.add(called, "metadata.tenant", message, "no tenant", metadata["tenant"])
        return ""
    if "tenant" in metadata:
        return _name(metadata, "tenant", called, tally)
    if default_tenant:
        return default_tenant
    tally.add(called, "metadata.tenant", f"a {kind} needs a tenant: this field is required", NAME_ALLOWED)
    return None


def _labels(labels: JSON, called: str, tally: FaultTally) -> dict[str, str]:
    at = "metadata.labels"
    if not isinstance(labels, dict):
        tally.add(called, at, f"{quote(labels)} is not a mapping", "a mapping of strings", labels)
        return {}
    if len(labels) - (SET_LABEL in labels) > MAX_LABELS:
        tally.add(called, at, f"there are {len(labels)} labels", f"at most {MAX_LABELS}")
        return {}
    right: dict[str, str] = {}
    for key, value in labels.items():
        if not LABEL_KEY.fullmatch(key):
            tally.add(called, at, f"{quote(key)} is not a valid label key", LABEL_KEY_ALLOWED, key)
        elif not isinstance(value, str):
            tally.add(called, f"{at}.{key}", f"{quote(value)} is not a string{_hint(value)}", "a string", value)
        elif not LABEL_VALUE.fullmatch(value):
            tally.add(called, f"{at}.{key}", f"{quote(value)} is not a valid label value", LABEL_VALUE_ALLOWED, value)
        else:
            right[key] = value
    return right


def _hint(value: JSON) -> str:
    return " (put it in quotes)" if isinstance(value, (bool, int, float)) else ""


def _name_manifest(source: str, kind: Kind | None, metadata: JSON, default_tenant: str) -> str:
    parts = [source]
    if kind is not None:
        parts.append(str(kind))
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(name, str):
        tenant = metadata.get("tenant", default_tenant) if kind in TENANTED else ""
        parts.append(escape(f"{tenant}/{name}" if tenant and isinstance(tenant, str) else name))
    return " ".join(parts)
