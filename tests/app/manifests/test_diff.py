"""The difference of two values, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.manifests.diff import FieldChange, diff


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"a": {"b": 80}}, {"a": {"b": 60}}, [FieldChange("a.b", 80, 60)]),
        ({"a": 1}, {}, [FieldChange("a", 1, None)]),
        ({}, {"a": {"b": 1}}, [FieldChange("a", None, {"b": 1})]),
        ({"a": [1, 2]}, {"a": [1, 3, 4]}, [FieldChange("a[1]", 2, 3), FieldChange("a[2]", None, 4)]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, [FieldChange("a[0].b", 1, 2)]),
        ({"a": 1}, {"a": True}, [FieldChange("a", 1, True)]),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": None}, {}, [FieldChange("a", None, None)]),
        ({"a": [1]}, {"a": {"b": 1}}, [FieldChange("a", [1], {"b": 1})]),
    ],
)
def test_each_changed_field_is_named_with_both_values(before: Any, after: Any, changes: list[FieldChange]) -> None:
    assert diff(before, after) == changes


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_only_equal_values_do_not_differ(before: Any, after: Any) -> None:
    assert (diff(before, after) == []) == (repr(sorted_(before)) == repr(sorted_(after)))


def sorted_(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: sorted_(value[key]) for key in sorted(value)}
    return [sorted_(item) for item in value] if isinstance(value, list) else value
