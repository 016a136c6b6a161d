"""Whatever stands in a manifest, validation answers with manifests or faults, and what it passes is usable."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.manifests import kinds, references, selectable
from app.manifests.reader import Document, read
from app.manifests.validate import validate
from tests.app.manifests.test_contract_example import EXAMPLE

pytestmark = pytest.mark.slow

EXAMPLES: list[Any] = [document.value for document in read(EXAMPLE.encode(), "yaml")]
SCALARS = [None, True, False, 0, 1, -1, 2, 50, 101, 300, 0.5, 1e12, 1e13, 1e308, 5e-324, 10**30]
TEXTS = ["", "x", "3", "A", "a/b", "\x1b[31m", "\u202e", "../x", "x" * 300, "2026-12-01T00:00:00Z"]
TEXTS += ["9999-12-31T23:59:59-23:59", "9999-99-99T99:99:99Z"]
LISTS = [[], [[]], [{}], ["x", "x"], [None], [{"name": "x"}, {"name": []}], [{"name": "x"}, {"name": "x"}]]
MAPPINGS = [{}, {"": 1}, {"10": 1}, {"1": {"10": 1}}, {"x": None}, {"name": "x"}, {"region": [], "perHour": 1}]
ODD = st.sampled_from([*SCALARS, *TEXTS, *LISTS, *MAPPINGS]).map(copy.deepcopy)
KEYS = st.sampled_from(["", "x", "1", "256", "257", "10", "spec", "name", "modl", "\x1b", "__class__", "a" * 100])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        found += places(inner, (*path, key))
    return found


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    value = copy.deepcopy(draw(st.sampled_from(EXAMPLES)))
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(places(value)))
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                holder[path[-1]] = draw(ODD)
            case "remove":
                del holder[path[-1]]
            case "add" if isinstance(holder, dict):
                holder[draw(KEYS)] = draw(ODD)
        if not isinstance(value, dict) or not places(value):
            break
    return value


@given(st.lists(mutated(), min_size=1, max_size=3), st.booleans())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_no_manifest_raises(values: list[Any], offline: bool) -> None:
    documents = [Document(f"f#{n}", copy.deepcopy(value)) for n, value in enumerate(values, 1)]
    manifests, faults = validate(documents, offline=offline)
    assert [document.value for document in documents] == values, "validation changes nothing"
    assert len(manifests) <= len(values)
    assert faults or len(manifests) == len(values)
    for fault in faults:
        assert str(fault).isprintable()
        assert len(str(fault)) < 700
        json.dumps(fault.value, allow_nan=False)
    for manifest in manifests:
        kinds.SPECS[manifest.kind].model_validate(manifest.spec)
        references.list_references(manifest)
        assert all(entry.isprintable() for entry in selectable.selector_entries(manifest))
        json.dumps(manifest.spec, allow_nan=False)


@given(st.recursive(ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)))
def test_nothing_at_all_raises(value: Any) -> None:
    manifests, faults = validate([Document("f#1", value)])
    assert faults
    assert manifests == []
