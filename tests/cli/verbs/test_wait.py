"""What `--for` means, on objects alone."""

from __future__ import annotations

from typing import Any

import pytest

from cli.exits import Failed
from cli.verbs.wait import test_of as judge


def node(generation: int = 2, observed: int = 2, status: str = "True") -> dict[str, Any]:
    return {
        "metadata": {"generation": generation},
        "spec": {"gpus": 4, "region": "eu", "templates": ["a", "b"]},
        "status": {"conditions": [{"type": "Ready", "status": status, "observedGeneration": observed}], "ok": True},
    }


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        ("condition=Ready", True),
        ("condition=Ready=false", False),
        ("condition=Absent", False),
        ("condition=Absent=Unknown", True),
        ("spec.gpus=4", True),
        ("spec.gpus=4.0", True),
        ("spec.gpus=5", False),
        ("spec.gpus=four", False),
        ("spec.region=eu", True),
        ("spec.templates[1]=b", True),
        ("spec.templates[9]=b", False),
        ("{.spec.region}=eu", True),
        ("status.ok=true", True),
        ("status.ok=1", False),
        ("create", True),
        ("delete", False),
    ],
)
def test_what_is_waited_for_is_judged_on_the_object(wanted: str, holds: bool) -> None:
    assert judge(wanted)(node()) is holds


def test_a_condition_of_an_older_generation_does_not_count() -> None:
    assert not judge("condition=Ready")(node(observed=1))


def test_what_is_gone_meets_delete_only() -> None:
    assert judge("delete")(None)
    assert not judge("condition=Ready")(None) and not judge("spec.gpus=4")(None) and not judge("create")(None)


@pytest.mark.parametrize("wanted", ["", "moon", "spec.gpus=", "=4"])
def test_what_is_not_understood_is_refused(wanted: str) -> None:
    with pytest.raises(Failed, match="is not understood"):
        judge(wanted)
