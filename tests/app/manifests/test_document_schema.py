"""The JSON Schema of manifests holds for what is right, and refuses the mistakes that an editor can see."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jsonschema_rs import Draft202012Validator, meta

from app.manifests.document_schema import write_schema
from app.manifests.model import Kind
from tests.app.manifests.bad import FAULTY, RIGHT
from tests.support.forked import ROOT

EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    return Draft202012Validator(write_schema(list(Kind)))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_fits(validator: Draft202012Validator, path: Any) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        if isinstance(document, dict) and str(document.get("apiVersion", "")).startswith("gpuwright/"):
            assert [error.message for error in validator.iter_errors(_as_json(document))] == []


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_has_one_of_its_own(kind: Kind) -> None:
    schema = write_schema([kind])
    assert meta.is_valid(schema)
    assert schema["properties"]["kind"]["enum"] == [str(kind)]


def test_what_is_right_fits_and_most_of_what_is_wrong_is_marked(validator: Draft202012Validator) -> None:
    """Rules between fields, and between objects, are left to `validate`."""
    assert [text for text in RIGHT if _is_marked(validator, text)] == []
    unmarked = {name for name, case in FAULTY.items() if not _is_marked(validator, case.text)}
    assert len(unmarked) < 0.3 * len(FAULTY), sorted(unmarked)
    assert not {name for name in unmarked if "unknown field" in name or "wrong type" in name}


def _is_marked(validator: Draft202012Validator, text: str) -> bool:
    try:
        documents = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError):
        return True
    return any(not validator.is_valid(_as_json(document)) for document in documents)


def _as_json(document: Any) -> Any:
    """Returns the document with keys as editors see them, which are strings."""
    return json.loads(json.dumps(document, default=str))
