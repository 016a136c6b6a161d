"""JSON Merge Patch, with the examples of RFC 7396, appendix A."""

from __future__ import annotations

from typing import Any

import pytest

from app.manifests.model import Key, Kind
from app.problem import HttpProblem
from app.world.declare import merge, merge_patch

KEY = Key(Kind.TENANT, "", "shop")
WIRE = {
    "apiVersion": "gpuwright/v1",
    "kind": "Tenant",
    "metadata": {"name": "shop", "labels": {"team": "a"}, "resourceVersion": 7},
    "spec": {"limit": {"gpus": 4, "pricePerHour": 20}},
    "status": {},
}


@pytest.mark.parametrize(
    ("target", "change", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_value_merges_as_the_rfc_says(target: Any, change: Any, result: Any) -> None:
    assert merge(target, change) == result


def test_a_patch_leaves_what_it_does_not_name() -> None:
    manifest = merge_patch(WIRE, {"spec": {"limit": {"gpus": 8}}}, KEY)
    assert manifest.spec == {"limit": {"gpus": 8, "pricePerHour": 20}}
    assert manifest.labels == {"team": "a"}


@pytest.mark.parametrize(
    "change", [{"metadata": {"name": "bank"}}, {"kind": "Node"}, {"spec": {"limit": {"gpus": -1}}}]
)
def test_a_patch_that_makes_something_else_or_something_wrong_is_refused(change: Any) -> None:
    with pytest.raises(HttpProblem) as refused:
        merge_patch(WIRE, change, KEY)
    assert refused.value.slug == "invalid"
    assert refused.value.faults
