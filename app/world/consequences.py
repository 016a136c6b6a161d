"""Updates other objects after a change: the tenants that may see a profile, the services with attainable SLOs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from app.manifests import attainable
from app.manifests.model import Key, Kind, WrittenSpec
from app.store.world import objects
from app.store.world.objects import Selection, StoredObject
from app.world.conditions import set_condition
from app.world.decisions import Action, ObjectDecision

PAGE = 1000
POLICY = Key(Kind.POLICY, "", "default")


def follow(connection: Connection, decisions: Sequence[ObjectDecision], now: datetime) -> list[ObjectDecision]:
    """Returns the decisions with their statuses, and after them the decisions that follow from them."""
    moved = {d.key: d for d in decisions if d.action is not Action.UNCHANGED}
    if not any(_matters(decision) for decision in moved.values()):
        return list(decisions)
    models = _models_concerned(moved)
    everything = POLICY in moved
    services = {s.key: s for s in _services(connection, models, everything)}
    services |= {d.key: d.after for d in moved.values() if d.key.kind is Kind.SERVICE and d.after}
    models |= {str(service.spec["model"]) for service in services.values()}
    profiles = {p.key: p for p in objects.read_objects_of_models(connection, Kind.PROFILE, models)}
    profiles |= {d.key: d.after for d in moved.values() if d.key.kind is Kind.PROFILE and d.after}
    known = _world(connection, models, moved)
    policy = known.get(POLICY)
    changed: dict[Key, ObjectDecision] = {}
    for stored in profiles.values():
        model = known.get(Key(Kind.MODEL, "", str(stored.spec["model"])))
        admitted = model.admits if model else None
        if stored.admits != admitted and _lives(stored.key, moved):
            changed[stored.key] = _move(moved, replace(stored, admits=admitted, updated_at=now), stored)
    of_model: dict[str, list[WrittenSpec]] = {}
    for stored in profiles.values():
        if _lives(stored.key, moved):
            of_model.setdefault(str(stored.spec["model"]), []).append(stored.spec)
    for service in services.values():
        model = known.get(Key(Kind.MODEL, "", str(service.spec["model"])))
        if model is None or not _lives(service.key, moved):
            continue
        found = attainable.slo_condition(
            service.spec, model.spec, of_model.get(model.name, []), policy.spec if policy else {}
        )
        after = set_condition(service, found, now)
        if after is not service:
            changed[service.key] = _move(moved, after, service)
    first = [changed.pop(decision.key, decision) for decision in decisions]
    return first + list(changed.values())


def _matters(decision: ObjectDecision) -> bool:
    return decision.key.kind in (Kind.SERVICE, Kind.PROFILE, Kind.MODEL, Kind.POLICY)


def _models_concerned(moved: Mapping[Key, ObjectDecision]) -> set[str]:
    """Returns the models that changed or whose profiles changed."""
    models = {key.name for key in moved if key.kind is Kind.MODEL}
    for key, decision in moved.items():
        if key.kind is Kind.PROFILE:
            models |= {str(s.spec["model"]) for s in (decision.before, decision.after) if s}
    return models


def _services(connection: Connection, models: set[str], everything: bool) -> list[StoredObject]:
    if not everything:
        return objects.read_objects_of_models(connection, Kind.SERVICE, models) if models else []
    found: list[StoredObject] = []
    after = ("", "")
    while page := objects.page(connection, Selection(Kind.SERVICE), after, PAGE):
        found += page
        after = (page[-1].tenant, page[-1].name)
    return found


def _world(connection: Connection, models: set[str], moved: Mapping[Key, ObjectDecision]) -> dict[Key, StoredObject]:
    """Returns models and policy as they are after this change."""
    known = objects.get_many(connection, [*(Key(Kind.MODEL, "", name) for name in sorted(models)), POLICY])
    for key, decision in moved.items():
        if key.kind in (Kind.MODEL, Kind.POLICY):
            if decision.after:
                known[key] = decision.after
            else:
                known.pop(key, None)
    return known


def _lives(key: Key, moved: Mapping[Key, ObjectDecision]) -> bool:
    return key not in moved or moved[key].action is not Action.DELETED


def _move(moved: Mapping[Key, ObjectDecision], after: StoredObject, before: StoredObject) -> ObjectDecision:
    decision = moved.get(after.key)
    if decision is None:
        return ObjectDecision(Action.STATUS, before, after)
    return replace(decision, after=after)
