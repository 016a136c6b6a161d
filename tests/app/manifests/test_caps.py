"""capW of a Node is within what its GpuType allows, and reads back GPU by GPU."""

from __future__ import annotations

import pytest

from app.manifests.caps import gpu_caps_w
from app.manifests.faults import ManifestsRefused
from app.manifests.model import Key, Kind
from app.manifests.offline import Input, load
from tests.app.manifests import bad


def files(**node: str) -> Input:
    """A GPU type of 10 to 70 W, and a node with four of these GPUs."""
    gpu_type = bad.gpu_type().replace("{name: x}", "{name: t4}")
    return Input("fleet.yaml", f"{gpu_type}---\n{bad.node(**node)}".encode())


WRONG = {
    "above maxW": ("71", "spec.capW", "71 W is above maxW 70 of GpuType t4", 71),
    "one above maxW": ("[70, 60, 70.5, 60]", "spec.capW[2]", "70.5 W is above maxW 70 of GpuType t4", 70.5),
    "at idleW": ("10", "spec.capW", "10 W is not above idleW 10 of GpuType t4", 10),
    "one below idleW": ("[5, 60, 60, 60]", "spec.capW[0]", "5 W is not above idleW 10 of GpuType t4", 5),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_cap_outside_its_type_is_refused_by_field_and_value(case: str) -> None:
    cap_w, field, message, value = WRONG[case]
    with pytest.raises(ManifestsRefused) as refused:
        load([files(capW=cap_w)])
    (fault,) = refused.value.faults
    assert (fault.field, fault.message, fault.value) == (field, message, value)
    assert fault.allowed == "a number over 10, at most 70"
    assert "Node x" in fault.document


@pytest.mark.parametrize(
    ("cap_w", "read"),
    [("", ()), ("60", (60.0,) * 4), ("[70, 60, 50, 40]", (70.0, 60.0, 50.0, 40.0))],
)
def test_a_cap_is_one_for_all_gpus_or_one_for_each(cap_w: str, read: tuple[float, ...]) -> None:
    node = load([files(capW=cap_w)]).spec(Key(Kind.NODE, "", "x"))
    assert node
    assert gpu_caps_w(node) == read
