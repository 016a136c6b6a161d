"""Each body of a request has an example that its schema admits; each tag and schema says what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from app.manifests.model import Kind
from app.manifests.offline import Input, load
from app.openapi.examples import MANIFESTS, YAML

DOCUMENT = Path(__file__).parents[3] / "openapi" / "openapi.json"


@cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DOCUMENT.read_bytes())
    return found


def list_operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            yield f"{method} {path}", operation


@pytest.mark.slow
def test_each_body_has_an_example_that_its_schema_admits() -> None:
    schemas, found = {"components": document()["components"]}, 0
    for name, operation in list_operations():
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            if media != "application/yaml":
                Draft202012Validator({**content["schema"], **schemas}).validate(content["example"])
            assert content["example"], (name, media)
            found += 1
    assert found > 40


def test_the_manifests_of_examples_may_be_declared_together() -> None:
    declared = load([Input("examples.json", json.dumps(list(MANIFESTS.values())).encode(), "json")])
    assert len(declared.manifests) == len(MANIFESTS)
    assert MANIFESTS[Kind.SERVICE]["spec"] == load_service()


def load_service() -> dict[str, Any]:
    others = "".join(
        f"---\n{json.dumps(manifest)}\n" for kind, manifest in MANIFESTS.items() if kind is not Kind.SERVICE
    )
    world = load([Input("example.yaml", (YAML + others).encode())])
    return next(dict(manifest.spec) for manifest in world.manifests.values() if manifest.kind is Kind.SERVICE)


def test_each_tag_and_each_schema_says_what_it_is() -> None:
    tags = {tag["name"]: tag["description"] for tag in document()["tags"]}
    assert {tag for _, operation in list_operations() for tag in operation["tags"]} == tags.keys()
    assert [name for name, schema in document()["components"]["schemas"].items() if not schema.get("description")] == []
