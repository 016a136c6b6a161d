"""Which index is which device, and what is said when a machine is not what was declared."""

from __future__ import annotations

from typing import Any

import pytest

from agents.contract.admitted import MetadataState
from agents.contract.reports import GpuFacts, Inventory
from app.nodes.detail import AilingGpu
from app.nodes.devices import (
    cap_condition,
    find_mismatches,
    fix_indexes,
    health_condition,
    metadata_condition,
    mismatch_condition,
)

TYPES: dict[str, Any] = {"v100-16gb": {"memoryGib": 16, "smCount": 80}, "t4": {"memoryGib": 16, "smCount": 40}}
SPEC: dict[str, Any] = {"gpuType": "v100-16gb", "gpus": 3}


def gpu(index: int, uuid: str = "", **facts: Any) -> GpuFacts:
    known: dict[str, Any] = {"memory_gib": 15.8, "sm_count": 80, "address": f"0000:{index + 1:02x}:00.0"} | facts
    return GpuFacts(index, uuid or f"GPU-{index}", **known)


def machine(*gpus: GpuFacts) -> Inventory:
    return Inventory(gpus or tuple(gpu(index) for index in range(3)))


def uuids(entries: list[Any]) -> dict[int, str]:
    return {entry["index"]: entry["uuid"] for entry in entries}


def told(inventory: Inventory, before: Inventory | None = None, spec: dict[str, Any] = SPEC) -> list[str]:
    there: list[Any] = fix_indexes([], before or machine(), [])
    return find_mismatches(spec, TYPES, fix_indexes(there, inventory, []), inventory)


def test_what_was_declared_and_found_is_no_mismatch() -> None:
    assert told(machine()) == []
    assert mismatch_condition([]).status == "False"


def test_the_first_inventory_fixes_which_index_is_which_device() -> None:
    first = fix_indexes([], machine(), [])
    assert uuids(first) == {0: "GPU-0", 1: "GPU-1", 2: "GPU-2"}
    swapped = machine(gpu(0, "GPU-1"), gpu(1, "GPU-0"), gpu(2))
    assert uuids(fix_indexes(first, swapped, [])) == uuids(first)


def test_a_gpu_beside_those_of_before_gets_an_index_of_its_own() -> None:
    first = fix_indexes([], machine(gpu(0)), [])
    assert uuids(fix_indexes(first, machine(gpu(0), gpu(1)), [])) == {0: "GPU-0", 1: "GPU-1"}


@pytest.mark.parametrize(
    ("inventory", "said"),
    [
        (machine(gpu(0), gpu(1)), ["3 GPUs are declared, but 2 were found", "GPU 2 (GPU-2) is missing"]),
        (machine(gpu(0), gpu(1), gpu(2), gpu(3)), ["3 GPUs are declared, but 4 were found"]),
        (
            machine(gpu(0, "GPU-1"), gpu(1, "GPU-0"), gpu(2)),
            ["GPU 0 (GPU-0) is now at index 1", "GPU 1 (GPU-1) is now at index 0"],
        ),
        (machine(gpu(0), gpu(1, "GPU-new"), gpu(2)), ["GPU 1 is now GPU-new, and was GPU-1"]),
        (
            machine(gpu(0), gpu(1, "GPU-2")),
            [
                "3 GPUs are declared, but 2 were found",
                "GPU 1 (GPU-1) is missing",
                "GPU 2 (GPU-2) is now at index 1",
            ],
        ),
        (
            machine(gpu(0, memory_gib=79.6), gpu(1), gpu(2)),
            ["GPU 0 (GPU-0) has 79.6 GiB, but a v100-16gb has 16"],
        ),
        (machine(gpu(0, sm_count=108), gpu(1), gpu(2)), ["GPU 0 (GPU-0) has 108 SMs, but a v100-16gb has 80"]),
        (machine(gpu(0, gpu_type="t4"), gpu(1), gpu(2)), ["GPU 0 (GPU-0) is a t4, but v100-16gb is declared"]),
        (machine(gpu(0, gpu_type="tesla-v100-sxm2"), gpu(1), gpu(2)), []),  # the driver's name of it
        (machine(gpu(0, memory_gib=0, sm_count=0), gpu(1), gpu(2)), []),  # it does not say
    ],
)
def test_what_is_not_as_declared_is_named(inventory: Inventory, said: list[str]) -> None:
    assert told(inventory) == said


def test_a_long_list_is_cut_and_counted() -> None:
    many = mismatch_condition([f"GPU {n} is missing" for n in range(100)])
    assert "GPU 4 is missing; and 95 more" in many.message
    assert len(many.message) <= 500


def test_health_is_of_the_device_wherever_it_is_now() -> None:
    first = fix_indexes([], machine(), [])
    swapped = machine(gpu(0, "GPU-1"), gpu(1, "GPU-0"), gpu(2))
    after = fix_indexes(first, swapped, [AilingGpu(0, "failed", True, "xid_79")])
    assert [(entry["uuid"], entry["health"], entry["fenced"], entry["reason"]) for entry in after] == [
        ("GPU-0", "ok", False, ""),
        ("GPU-1", "failed", True, "xid_79"),
        ("GPU-2", "ok", False, ""),
    ]


def test_a_device_that_is_gone_keeps_its_place_its_facts_and_the_agents_reason() -> None:
    first = fix_indexes([], machine(), [])
    (*_, gone) = fix_indexes(first, machine(gpu(0), gpu(1)), [])
    assert (gone["index"], gone["smCount"], gone["health"], gone["reason"]) == (2, 80, "failed", "missing")
    (*_, lost) = fix_indexes(first, machine(gpu(0), gpu(1)), [AilingGpu(2, "failed", True, "lost")])
    assert (lost["fenced"], lost["reason"]) == (True, "lost")


def test_a_node_whose_own_runtimes_may_reach_the_metadata_address_is_named_with_the_reason() -> None:
    found = metadata_condition(MetadataState(False, "own images may reach it: nft is not installed"))
    assert (found.type, found.status, found.reason) == ("MetadataBlocked", "False", "Reachable")
    assert found.message == "own images may reach it: nft is not installed"
    assert metadata_condition(MetadataState(True, "a rule")).reason == "Blocked"
    assert metadata_condition(None).status == "True", "its allow-list is gone"


def test_a_fenced_gpu_is_named_with_its_reason() -> None:
    said = health_condition(
        fix_indexes([], machine(), [AilingGpu(1, "failed", True, "mps_fault"), AilingGpu(2, "degraded")])
    )
    assert (said.status, said.reason, said.message) == ("False", "Fenced", "GPU 1 (GPU-1) is fenced: mps_fault")
    assert health_condition(fix_indexes([], machine(), [AilingGpu(2, "degraded")])).status == "True"


def test_case_32_a_gpu_of_which_a_newer_agent_says_what_is_not_known_here_is_not_healthy() -> None:
    said = health_condition(fix_indexes([], machine(), [AilingGpu(0, "dreaming")]))
    assert (said.status, said.reason, said.message) == ("False", "Failed", "GPU 0 (GPU-0) is dreaming")


def test_a_cap_below_a_devices_smallest_limit_is_named_with_both() -> None:
    found = machine(*(gpu(index, power_min_w=150.0) for index in range(3)))
    for cap_w in (150, [150, 200, 300]):
        assert cap_condition(SPEC | {"capW": cap_w}, found).status == "True"
    condition = cap_condition(SPEC | {"capW": [150, 149.5, 300]}, found)
    assert (condition.type, condition.status, condition.reason) == ("CapsSettable", "False", "BelowSmallest")
    assert condition.message == (
        "clocks and batches alone keep the cap: GPU 1 (GPU-1): capW 149.5 is below 150 W, its smallest limit"
    )
    assert cap_condition(SPEC | {"capW": 100}, machine()).status == "True"  # the devices do not say
