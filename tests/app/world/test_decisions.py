"""What a declaration changes, decided from data alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from app.manifests.model import Kind, Manifest
from app.store.world.objects import StoredObject
from app.world.decisions import Action, decide, deletions

THEN = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
NOW = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)
TENANT = Manifest(Kind.TENANT, "", "shop", {"limit": {"gpus": 4}}, {"team": "a"})


def stored(manifest: Manifest) -> StoredObject:
    """The manifest as it was declared an hour ago."""
    (decision,) = decide([manifest], {}, THEN)
    return replace(decision.object, resource_version=7)


def model(argument: Any) -> Manifest:
    runtime: Any = {"template": "t", "args": {"warm": argument}}
    return Manifest(Kind.MODEL, "", "m", {"variants": [{"name": "v", "accuracy": 1, "runtime": runtime}]})


def test_what_is_not_there_is_created_at_generation_one() -> None:
    (decision,) = decide([TENANT], {}, NOW)
    assert decision.action is Action.CREATED
    assert decision.before is None
    assert (decision.object.generation, decision.object.created_at) == (1, NOW)


def test_an_equal_declaration_leaves_the_object_as_it_is() -> None:
    before = stored(TENANT)
    (decision,) = decide([TENANT], {TENANT.key: before}, NOW)
    assert decision.action is Action.UNCHANGED
    assert decision.after is before


def test_a_new_spec_counts_a_generation_and_keeps_identity_and_status() -> None:
    before = replace(stored(TENANT), status={"conditions": []})
    (decision,) = decide([replace(TENANT, spec={})], {TENANT.key: before}, NOW)
    after = decision.object
    assert decision.action is Action.UPDATED
    assert (after.spec, after.generation, after.updated_at) == ({}, 2, NOW)
    assert (after.uid, after.created_at, after.status) == (before.uid, THEN, {"conditions": []})


def test_new_labels_are_an_update_of_the_same_generation() -> None:
    (decision,) = decide([replace(TENANT, labels={})], {TENANT.key: stored(TENANT)}, NOW)
    assert decision.action is Action.UPDATED
    assert (decision.object.labels, decision.object.generation) == ({}, 1)


def test_true_is_not_the_number_one() -> None:
    before = stored(model(1))
    (decision,) = decide([model(True)], {before.key: before}, NOW)
    assert decision.action is Action.UPDATED
    assert decision.object.generation == 2
    (again,) = decide([model(1.0)], {before.key: before}, NOW)
    assert again.action is Action.UNCHANGED


def test_a_deletion_has_no_after() -> None:
    (decision,) = deletions([stored(TENANT)])
    assert (decision.action, decision.after, decision.key) == (Action.DELETED, None, TENANT.key)
