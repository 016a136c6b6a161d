"""Writes what a cycle knew as JSON, by the names of what is known, and reads it again as today's snapshot.

The fleet is written as manifests. Only this module follows a rewrite of the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from typing import Any

import msgspec

from app.control.domain.snapshot import DeclaredObject, Snapshot
from tests.net.corpus import Row

DECLARED = "declared"
APART = (DECLARED, "proposal")  # a number that no answer depends on


def write_moment(snapshot: Snapshot, before: Sequence[Row], *, reason: str, solver: str) -> Row:
    """Returns what was known, without what is as usual, and without the fleet if it is declared as before."""
    known = {
        field.name: msgspec.to_builtins(value, str_keys=True)
        for field in fields(Snapshot)
        if field.name not in APART and (value := getattr(snapshot, field.name)) != _default(field)
    }
    documents = write_documents(snapshot.declared)
    fleet = {} if documents == before else {DECLARED: documents}
    return {"known": known, "reason": reason, "hasProposal": snapshot.proposal > 0, "solver": solver, **fleet}


def read_snapshot(moment: Row, documents: Iterable[Row]) -> Snapshot:
    """Returns the snapshot of a moment at which this fleet was declared."""
    declared = [
        {"kind": document["kind"], "spec": document["spec"], "name": metadata["name"], "tenant": metadata["tenant"]}
        for document in documents
        for metadata in [document["metadata"]]
    ]
    known = {**moment["known"], DECLARED: declared, "proposal": int(moment["hasProposal"])}
    return msgspec.convert(known, Snapshot)


def write_documents(declared: Iterable[DeclaredObject]) -> list[Row]:
    """Returns declared objects as manifests."""
    return [
        {"kind": item.kind, "metadata": {"name": item.name, "tenant": item.tenant}, "spec": item.spec}
        for item in declared
    ]


def _default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default
