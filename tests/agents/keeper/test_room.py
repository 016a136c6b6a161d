"""Whether a copy fits: what a process was given is held until its memory is known to be free."""

from __future__ import annotations

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance
from agents.contract.fits import GpuRules, Shortfall
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.room import HOLD_NOTHING, excess_sm_percent, missing
from tests.support.nodes import assigned, served

OVERLAP, STRICT = GpuRules(), GpuRules(overlap=False)


def copy(instance: AssignedInstance, stage: Stage = Stage.READY) -> NodeCopy:
    return NodeCopy(f"{instance.id}.1.1", instance, "GPU-a", stage)


def reason(found: Shortfall | None) -> str:
    return found.reason if found else ""


def test_what_fits_exactly_fits() -> None:
    there = [copy(served("a", sm=60, memory=10))]
    assert missing(served("b", sm=40, memory=6), 16, there, OVERLAP) is None


def test_what_is_missing_of_each_is_said() -> None:
    found = missing(served("b", sm=50, memory=8), 16, [copy(served("a", sm=60, memory=10))], OVERLAP)
    assert found == Shortfall("no_room", "needs 10 SM% and 2.00 GiB more", 10, 2)


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage not in HOLD_NOTHING])
def test_a_copy_holds_its_memory_until_it_is_gone_or_in_host_memory(stage: Stage) -> None:
    there = [copy(served("a", memory=10), stage)]
    assert reason(missing(served("b", memory=10), 16, there, OVERLAP)) == "no_room"


@pytest.mark.parametrize("stage", HOLD_NOTHING)
def test_a_copy_that_is_gone_or_in_host_memory_holds_nothing(stage: Stage) -> None:
    assert missing(served("b", memory=10), 16, [copy(served("a", memory=10), stage)], OVERLAP) is None
    assert excess_sm_percent([copy(served("a", sm=60)), copy(served("b", sm=70), stage)]) == 0


def test_shares_may_overlap_while_a_copy_is_replaced_and_memory_may_not() -> None:
    there = [copy(served("a", sm=80, memory=4))]
    assert missing(served("a", sm=90, memory=4), 16, there, OVERLAP) is None
    assert reason(missing(served("a", sm=90, memory=4), 16, there, STRICT)) == "no_room_to_hand_over"
    assert reason(missing(served("a", sm=20, memory=13), 16, there, OVERLAP)) == "no_room_to_hand_over"


def test_the_copy_that_is_replaced_is_no_company() -> None:
    rules = GpuRules(clients_per_gpu=1)
    assert missing(served("a", sm=20), 16, [copy(served("a"))], rules) is None
    assert reason(missing(served("b", sm=20), 16, [copy(served("a"))], rules)) == "too_many_clients"


def test_instances_of_one_model_are_limited_and_jobs_of_it_are_not() -> None:
    one = msgspec.structs.replace(served("a", sm=10), model="m")
    other = msgspec.structs.replace(served("b", sm=10), model="m")
    assert reason(missing(other, 16, [copy(one)], OVERLAP)) == "same_model"
    training = msgspec.structs.replace(one, service="", job="a")
    assert missing(other, 16, [copy(training)], OVERLAP) is None
    assert missing(training, 16, [copy(other)], OVERLAP) is None


def test_limits_over_100_percent_are_told() -> None:
    assert excess_sm_percent([copy(served("a", sm=60)), copy(served("a", sm=70))]) == 30
    assert excess_sm_percent([copy(served("a", sm=60)), copy(served("b", sm=40))]) == 0


def test_a_way_of_handing_over_that_is_not_known_counts_as_strict() -> None:
    assert GpuRules.of(assigned(1)).overlap
    assert not GpuRules.of(assigned(1, handover="sideways")).overlap
