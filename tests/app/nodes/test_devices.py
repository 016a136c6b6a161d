"""Which index is which device, and what is said when a machine is not what was declared."""

from __future__ import annotations

from typing import Any

import pytest

from agents.contract.admitted import MetadataState
from agents.contract.reports import GpuFacts, Inventory
from app.nodes.detail import AilingGpu
from app.nodes.devices import (
    DeviceDifferences,
    cap_condition,
    find_differences,
    find_replaced,
    health_condition,
    list_gpus,
    metadata_condition,
    mismatch_condition,
)

TYPES: dict[str, Any] = {"v100-16gb": {"memoryGib": 16, "smCount": 80}, "t4": {"memoryGib": 16, "smCount": 40}}
SPEC: dict[str, Any] = {"gpuType": "v100-16gb", "gpus": 3}
AT_2 = "GPU 2 (GPU-2 at 0000:03:00.0)"


def gpu(index: int, uuid: str = "", **facts: Any) -> GpuFacts:
    known: dict[str, Any] = {"memory_gib": 15.8, "sm_count": 80, "address": f"0000:{index + 1:02x}:00.0"} | facts
    return GpuFacts(index, uuid or f"GPU-{index}", **known)


def machine(*gpus: GpuFacts) -> Inventory:
    return Inventory(gpus or tuple(gpu(index) for index in range(3)))


def uuids(entries: list[Any]) -> dict[int, str]:
    return {entry["index"]: entry["uuid"] for entry in entries}


def listed(inventory: Inventory, before: Inventory | None = None, ailing: tuple[AilingGpu, ...] = ()) -> list[Any]:
    """`status.gpus` after this inventory."""
    there: list[Any] = list_gpus([], before or machine(), [], 3)
    return list_gpus(there, inventory, ailing, 3)


def told(inventory: Inventory, before: Inventory | None = None, spec: dict[str, Any] = SPEC) -> list[str]:
    found = find_differences(spec, TYPES, listed(inventory, before), inventory)
    return [*found.other, *found.missing, *found.beyond]


def test_what_was_declared_and_found_is_no_mismatch() -> None:
    assert told(machine()) == []
    found = mismatch_condition(DeviceDifferences())
    assert (found.status, found.message) == ("False", "the GPUs are as declared")


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([gpu(0, "GPU-x"), gpu(1), gpu(2)], ["GPU 0 is now GPU-x at 0000:01:00.0; it was GPU-0"]),
        (
            [gpu(0, "GPU-1"), gpu(1, "GPU-0"), gpu(2)],
            [
                "GPU 0 is now GPU-1 at 0000:01:00.0, which was GPU 1; it was GPU-0",
                "GPU 1 is now GPU-0 at 0000:02:00.0, which was GPU 0; it was GPU-1",
            ],
        ),
        (
            [gpu(0, "GPU-x", serial="1"), gpu(1, "GPU-y", serial="9"), gpu(2, serial="3")],
            [
                "GPU 0 is now GPU-x at 0000:01:00.0, the same board; it was GPU-0",
                "GPU 1 is now GPU-y at 0000:02:00.0, another board; it was GPU-1",
            ],
        ),
        ([gpu(1), gpu(2)], []),
    ],
)
def test_an_index_means_the_device_that_its_agent_says_and_a_change_is_told(
    after: list[GpuFacts], said: list[str]
) -> None:
    before = list_gpus([], machine(*(gpu(index, serial=str(index + 1)) for index in range(3))), [], 3)
    found = machine(*after)
    assert [text for _, text in find_replaced(before, found)] == said
    now = uuids(list_gpus(before, found, [], 3))
    assert {gpu.index: gpu.uuid for gpu in after}.items() <= now.items()
    assert find_replaced(list_gpus(before, found, [], 3), found) == [], "it is told once"


@pytest.mark.parametrize(
    ("inventory", "said"),
    [
        (machine(gpu(0), gpu(1)), ["3 GPUs are declared, but 2 were found", f"{AT_2} is missing"]),
        (
            machine(gpu(0), gpu(1), gpu(2), gpu(3, memory_gib=79.6)),
            ["GPU 3 (GPU-3) is beyond the 3 declared GPUs, so it is not used"],
        ),
        (machine(gpu(0, "GPU-1"), gpu(1, "GPU-0"), gpu(2)), []),
        (
            machine(gpu(1), gpu(2), gpu(4)),
            [
                "3 GPUs are declared, but 3 were found",
                "GPU 0 (GPU-0 at 0000:01:00.0) is missing",
                "GPU 4 (GPU-4) is beyond the 3 declared GPUs, so it is not used",
            ],
        ),
        (
            Inventory((gpu(0), gpu(1)), unclear="GPU 2 is gone and GPU-x, GPU-y are new"),
            ["GPU 2 is gone and GPU-x, GPU-y are new", f"{AT_2} is missing"],
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


def test_a_gpu_that_no_agent_ever_found_is_missing_like_one_that_is_gone() -> None:
    found = list_gpus([], machine(gpu(1)), [], 2)
    assert [(entry["index"], entry["uuid"], entry["health"], entry["reason"]) for entry in found] == [
        (0, "", "failed", "missing"),
        (1, "GPU-1", "ok", ""),
    ]
    said = find_differences(SPEC | {"gpus": 2}, TYPES, found, machine(gpu(1))).missing
    assert said == ["2 GPUs are declared, but 1 were found", "GPU 0 is missing"]


def test_plans_go_on_beside_a_missing_gpu_but_not_on_other_devices() -> None:
    missing = mismatch_condition(DeviceDifferences(missing=["GPU 2 is missing"]))
    assert (missing.reason, missing.message) == (
        "Missing",
        "GPU 2 is missing; the others are used: repair the machine, or drain the node, declare what it has and join it "
        "again",
    )
    both = mismatch_condition(DeviceDifferences(missing=["GPU 2 is missing"], other=["GPU 0 is a t4"]))
    assert (both.reason, both.message) == (
        "Mismatch",
        "GPU 0 is a t4; GPU 2 is missing; nothing is planned there: correct the declaration, or repair the machine",
    )


def test_a_node_with_more_gpus_than_declared_uses_the_declared_ones_and_says_so() -> None:
    found = machine(gpu(0), gpu(1), gpu(2), gpu(3))
    said = mismatch_condition(find_differences(SPEC, TYPES, listed(found), found))
    assert (said.status, said.reason) == ("True", "Undeclared")
    assert said.message.endswith("the declared ones are used: declare as many as the node has to use all of them")


def test_a_long_list_is_cut_and_counted() -> None:
    many = mismatch_condition(DeviceDifferences(missing=[f"GPU {n} is missing" for n in range(100)]))
    assert "GPU 4 is missing; and 95 more" in many.message
    assert len(many.message) <= 500


def test_a_device_that_is_gone_keeps_its_place_its_facts_and_the_agents_reason() -> None:
    (*_, gone) = listed(machine(gpu(0), gpu(1)))
    assert (gone["index"], gone["smCount"], gone["health"], gone["reason"]) == (2, 80, "failed", "missing")
    (*_, lost) = listed(machine(gpu(0), gpu(1)), ailing=(AilingGpu(2, "failed", True, "lost"),))
    assert (lost["fenced"], lost["reason"]) == (True, "lost")


def test_a_node_whose_own_runtimes_may_reach_the_metadata_address_is_named_with_the_reason() -> None:
    found = metadata_condition(MetadataState(False, "own images may reach it: nft is not installed"))
    assert (found.type, found.status, found.reason) == ("MetadataBlocked", "False", "Reachable")
    assert found.message == "own images may reach it: nft is not installed"
    assert metadata_condition(MetadataState(True, "a rule")).reason == "Blocked"
    assert metadata_condition(None).status == "True", "its allow-list is gone"


def test_a_fenced_gpu_is_named_with_its_reason() -> None:
    said = health_condition(
        list_gpus([], machine(), [AilingGpu(1, "failed", True, "mps_fault"), AilingGpu(2, "degraded")], 3)
    )
    assert (said.status, said.reason, said.message) == (
        "False",
        "Fenced",
        "GPU 1 (GPU-1 at 0000:02:00.0) is fenced: mps_fault",
    )
    assert health_condition(list_gpus([], machine(), [AilingGpu(2, "degraded")], 3)).status == "True"


def test_case_32_a_gpu_of_which_a_newer_agent_says_what_is_not_known_here_is_not_healthy() -> None:
    said = health_condition(list_gpus([], machine(), [AilingGpu(0, "dreaming")], 3))
    assert (said.status, said.reason, said.message) == ("False", "Failed", "GPU 0 (GPU-0 at 0000:01:00.0) is dreaming")


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


def test_a_gpu_that_its_agent_misses_is_missing_whatever_its_agent_says_of_it() -> None:
    lost = AilingGpu(1, "failed", True, "lost")
    entries = listed(machine(gpu(0), gpu(2)), ailing=(lost,))
    assert [entry.get("missing", False) for entry in entries] == [False, True, False]
    assert (entries[1]["reason"], entries[1]["uuid"]) == ("lost", "GPU-1")
    assert not any("missing" in entry for entry in list_gpus(entries, machine(), [], 3))
