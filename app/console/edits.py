"""Words the page that undoes an edit of the declared world: what was changed, and what it puts back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from app.console.confirm import Confirmation
from app.console.links import audit_link, what_if_link
from app.console.wording import count
from app.manifests.diff import FieldChange, diff
from app.manifests.model import STORED, Free, Key, Kind
from app.store.world.audit import AuditRow
from solvers.planning.wire import PlanLinesWire

CREATE = "create"
VERBS = (CREATE, "update", "delete")
MOST_FIELDS = 20
WHAT_IF_FIELDS = {"spec.ratePerSecond": "rate", "spec.slo.latencyMs": "slo"}  # what a what-if answers of a service


def is_edit(row: AuditRow) -> bool:
    """Returns whether the entry is of a declared object that can be as it was before: declared so, or not at all."""
    known = row["after"] if row["verb"] == CREATE else row["before"]
    return bool(row["kind"] in STORED and row["outcome"] == "done" and row["verb"] in VERBS and known)


def key_of(row: AuditRow) -> Key:
    return Key(Kind(row["kind"]), row["tenant"], row["name"])


def read_declared(wire: Mapping[str, Any] | None) -> Free:
    """Returns what a person declares of an object; nothing where there is none."""
    return {"labels": wire["metadata"]["labels"], "spec": wire["spec"]} if wire else {}


def confirm_undo(row: AuditRow, current: Mapping[str, Any] | None) -> Confirmation:
    """Returns the page before an edit is undone; `current` is the object as it is now."""
    key = key_of(row)
    name = key.full_name
    changes = diff(read_declared(current), read_declared(row["before"]))
    effects = [f"{key.kind} {name} is declared as it was before the {row['verb']} by {row['principal']}."]
    effects += [_spell(change) for change in changes[:MOST_FIELDS]] if current else ["It exists again."]
    if len(changes) > MOST_FIELDS and current:
        effects.append(f"and {len(changes) - MOST_FIELDS} more fields.")
    asked = {
        WHAT_IF_FIELDS[change.path]: f"{change.after:g}"
        for change in changes
        if change.path in WHAT_IF_FIELDS and isinstance(change.after, int | float)
    }
    return Confirmation(
        question=f"Undo the {row['verb']} of {key.kind} {name}?",
        button="Put it back",
        action=f"/audit/{row['id']}/undo",
        back=audit_link(key.kind, name),
        back_name="Audit",
        effects=effects,
        what_if=what_if_link(service=name, **asked) if current and asked and key.kind is Kind.SERVICE else "",
    )


def confirm_delete(row: AuditRow, body: PlanLinesWire) -> Confirmation:
    """Returns the page before a create is undone, which nothing refuses; `body` is the plan in force."""
    key = key_of(row)
    name = key.full_name
    effects = [f"{key.kind} {name} is deleted: before the create by {row['principal']} there was none.",
               "Nothing that is declared refers to it."]  # fmt: skip
    instances = sum(line["service"] == name for line in body["instances"]) if key.kind is Kind.SERVICE else 0
    if instances:
        effects.append(f"{count(instances, 'instance stops', 'instances stop')}; requests to it are refused.")
    places = [line["node"] for line in body["jobs"] if line["job"] == name] if key.kind is Kind.JOB else []
    effects += [f"It ends on {node}; what it has not saved is lost." for node in places]
    return Confirmation(
        question=f"Undo the create of {key.kind} {name}?",
        button="Delete it",
        action=f"/audit/{row['id']}/undo",
        back=audit_link(key.kind, name),
        back_name="Audit",
        effects=effects,
        what_if=what_if_link(node=name) if key.kind is Kind.NODE else "",
    )


def _spell(change: FieldChange) -> str:
    before, after = (
        "nothing" if value is None else msgspec.json.encode(value).decode() for value in (change.before, change.after)
    )
    return f"{change.path}: {before} → {after}"
