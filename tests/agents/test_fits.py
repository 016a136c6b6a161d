"""Node and planner share one rule for whether another copy fits on a GPU."""

from __future__ import annotations

import msgspec

from agents.contract.assignments import Assignment
from agents.contract.fits import MOST_CLIENTS, GpuRules, find_shortfall
from tests.support.nodes import served

GPU_GIB = 16.0
STRICT = GpuRules(overlap=False)


def test_the_old_copy_of_a_service_holds_memory_and_in_strict_hand_overs_its_sms() -> None:
    old, new = served("a", sm=60, memory=10), served("a", sm=60, memory=6)
    assert find_shortfall(new, [old], GPU_GIB, GpuRules()) is None
    lacking = find_shortfall(new, [old], GPU_GIB, STRICT)
    assert lacking and lacking.reason == "no_room_to_hand_over" and lacking.sm_percent == 20
    larger = find_shortfall(served("a", sm=60, memory=7), [old], GPU_GIB, GpuRules())
    assert larger and larger.message == "needs 1.00 GiB more next to the copy it replaces"


def test_the_old_copy_of_a_job_ends_first_and_holds_nothing_against_the_new_one() -> None:
    job = msgspec.structs.replace(served("a", sm=60, memory=10), service="", job="train")
    assert find_shortfall(job, [job], GPU_GIB, STRICT) is None


def test_no_more_clients_are_allowed_than_mps_takes() -> None:
    assert GpuRules.of(Assignment("node-1", 1, 1, 1, clients_per_gpu=100)).clients_per_gpu == MOST_CLIENTS


def test_an_instance_on_a_gpu_that_is_wanted_whole_is_named_to_its_own_tenant_only() -> None:
    whole, small = served("a", gpus=(0, 1)), served("b")
    for wanted, there in ((whole, small), (small, whole)):
        known = find_shortfall(wanted, [there], GPU_GIB, GpuRules())
        assert known and known.message == f"{there.id} is still on the GPU, and one of the two needs it whole"
        stranger = msgspec.structs.replace(there, id="bank/merger-llm/1", tenant="bank")
        hidden = find_shortfall(wanted, [stranger], GPU_GIB, GpuRules())
        assert hidden and hidden.reason == "whole_gpus"
        assert hidden.message == "an instance of another tenant is still on the GPU, and one of the two needs it whole"
