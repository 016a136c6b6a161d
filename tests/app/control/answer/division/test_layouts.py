"""Which GPUs can be divided, into what, and how fast a device is taken to be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.contract.gpus import read_sheets
from app.control.answer.division.check import find_layout_fault
from app.control.answer.division.divided import derive_profile
from app.control.answer.division.layouts import MigLayout, list_layouts
from app.control.answer.division.least_cost import raise_bound
from app.control.formulate.formulate import formulate
from solvers.planning.problem import Demand, Profile
from tests.app.control.answer.division.worlds import A100, alone, fleet

CAN_BE_DIVIDED = {
    "a100-pcie-40gb", "a100-sxm4-40gb", "a100-pcie-80gb", "a100-sxm4-80gb", "a30-24gb", "h100-pcie-80gb",
    "h100-sxm5-80gb", "h200-sxm-141gb", "h200-nvl-141gb",
}  # fmt: skip


def a100(profile: str) -> MigLayout:
    return next(layout for layout in list_layouts("a100", A100) if layout.profile.name == profile)


def test_the_table_has_only_divisions_that_a_gpu_has_room_for() -> None:
    sheets = {name: sheet for name, sheet in read_sheets().items() if sheet.mig_profiles}
    assert sheets.keys() == CAN_BE_DIVIDED
    for sheet in sheets.values():
        for profile in sheet.mig_profiles:
            assert find_layout_fault(profile, profile.memory_slices / sheet.mig_memory_slices) is None
            assert profile.most * profile.memory_gib <= sheet.memory_gib
            assert profile.most * profile.sm_count <= sheet.sm_count
            assert profile.most > 1
            assert profile.name.endswith("gb")


def test_one_device_more_than_a_gpu_holds_is_a_fault() -> None:
    seven = a100("1g.5gb")
    assert find_layout_fault(replace(seven.profile, most=8), 1 / 8) == "8 devices 1g.5gb need 8 compute slices of 7"
    wide = a100("1g.10gb")
    assert find_layout_fault(replace(wide.profile, most=5), 2 / 8) == "5 devices 1g.10gb need 1.25 of the memory"


def test_a_type_is_known_by_its_sms_and_memory_whatever_its_name() -> None:
    assert [layout.gpu_type for layout in list_layouts("big", A100)] == [
        "big-1g-5gb", "big-1g-10gb", "big-2g-10gb", "big-3g-20gb",
    ]  # fmt: skip
    assert list(list_layouts("a100-1g-5gb", {**A100, "memoryGib": 4.75, "smCount": 14})) == []
    h200 = {**A100, "memoryGib": 141, "smCount": 132}
    assert [layout.profile.name for layout in list_layouts("h200", h200)] == ["1g.18gb", "2g.35gb"]
    assert list(list_layouts("t4", {**A100, "memoryGib": 16, "smCount": 40})) == []


def test_a_device_is_as_fast_as_the_smaller_of_its_shares_of_the_whole_gpu() -> None:
    curve = ((10, 40.0), (25, 18.0), (50, 11.0), (100, 8.0))
    whole = Profile(
        "m", "v", "a100", {4: curve, 8: ((30, 60.0), (100, 20.0))}, {4: 2.0, 8: 3.0}, Demand(power_w=((100, 300.0),))
    )
    derived = derive_profile(whole, a100("1g.5gb"))
    assert derived is not None
    assert derived.latency_ms.keys() == {4}, "8 was not profiled at so few SMs"
    assert dict(derived.latency_ms[4]) == pytest.approx({80: 40.0, 100: 40 - 22 * 2.5 / 15})
    half = derive_profile(whole, a100("3g.20gb"))
    assert half is not None
    assert dict(half.latency_ms[4])[100] == pytest.approx(18 - 7 * (42 / 1.08 - 25) / 25)
    assert derive_profile(replace(whole, memory_gib={4: 4.8, 8: 9.0}), a100("1g.5gb")) is None, "it does not fit"


def test_a_bound_is_raised_to_the_next_sum_of_whole_gpus() -> None:
    problem = formulate(fleet(alone(3), nodes=3)).problem
    assert raise_bound(problem, 3.2) == pytest.approx(5.6)
    assert raise_bound(problem, 2.8) == pytest.approx(2.8)
    node = problem.nodes["n0"]
    three = replace(node, gpus=(0, 1, 2), price_per_hour=0.1, pricing="node")
    single = [replace(node, name=name, price_per_hour=0.3) for name in ("n1", "n2")]
    mixed = replace(problem, nodes={line.name: line for line in (three, *single)})
    assert raise_bound(mixed, 0.65) == pytest.approx(0.9), "prices that differ by rounding are one"
    shared = replace(problem, policy=replace(problem.policy, pricing="share"))
    assert raise_bound(shared, 3.2) == 3.2
    cheap = replace(problem, policy=replace(problem.policy, unserved_price=3.0))
    assert raise_bound(cheap, 3.2) == 3.2, "a plan that leaves one request/s out may cost as little"
