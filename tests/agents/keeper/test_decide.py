"""What is started and what is taken down, decided from what is wanted and what is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contract.assignments import AssignedInstance, Frame
from agents.contract.fits import GpuRules
from agents.keeper.copies import AWAY, NodeCopy, Stage
from agents.keeper.decide import CopyDecision, NodeConstraints, WantedInstance, decide
from agents.keeper.room import excess_sm_percent

GPU, OTHER = "GPU-a", "GPU-b"
NODE = NodeConstraints(memory_gib={GPU: 16.0, OTHER: 16.0})
OVERLAP, STRICT = GpuRules(overlap=True), GpuRules(overlap=False)


def instance(
    name: str, sm: float = 30, memory: float = 2, service: str = "search", **fields: object
) -> AssignedInstance:
    known = AssignedInstance(name, 0, "shop", service, model=name, template="t", sm_percent=sm, memory_gib=memory)
    return msgspec.structs.replace(known, **fields)


def want(name: str, sm: float = 30, gpu: str = GPU, **fields: Any) -> WantedInstance:
    return WantedInstance(instance(name, sm, **fields), gpu)


def job(name: str, sm: float = 30, **fields: Any) -> WantedInstance:
    return want(name, sm, service="", job=name, **fields)


def copy(of: WantedInstance, stage: Stage = Stage.READY, number: int = 1) -> NodeCopy:
    batch = of.instance.batch
    return NodeCopy(f"{of.instance.id}.1.{number}", of.instance, of.gpu, stage, largest_batch=batch.max if batch else 0)


def started(decision: CopyDecision) -> list[str]:
    return [start.wanted.instance.id for start in decision.start]


def taken_down(decision: CopyDecision) -> list[str]:
    return [going.copy for going in decision.take_down]


def reasons(decision: CopyDecision) -> dict[str, str]:
    return {held.instance: held.missing.reason for held in decision.held}


def test_what_is_wanted_and_not_there_is_started() -> None:
    assert started(decide([want("a"), want("b")], [], NODE, OVERLAP)) == ["a", "b"]


def test_what_is_there_as_wanted_is_left_alone() -> None:
    assert decide([want("a")], [copy(want("a"))], NODE, OVERLAP) == CopyDecision()


def test_what_is_not_wanted_goes() -> None:
    assert taken_down(decide([], [copy(want("a"))], NODE, OVERLAP)) == ["a.1.1"]


def test_another_share_is_another_process_and_the_old_one_stays_until_it_is_ready() -> None:
    old = copy(want("a", 30))
    decision = decide([want("a", 40)], [old], NODE, OVERLAP)
    assert started(decision) == ["a"]
    assert taken_down(decision) == []
    for stage in (Stage.STARTING, Stage.VERIFYING, Stage.WARMING, Stage.ROUTING):
        assert decide([want("a", 40)], [old, copy(want("a", 40), stage, 2)], NODE, OVERLAP) == CopyDecision()
    decision = decide([want("a", 40)], [old, copy(want("a", 40), Stage.READY, 2)], NODE, OVERLAP)
    assert taken_down(decision) == ["a.1.1"]


def test_a_copy_that_others_end_serves_until_its_successor_is_ready_or_it_must_drain() -> None:
    old = msgspec.structs.replace(copy(want("a")), stays_until=100.0)
    decision = decide([want("a")], [old], NODE, OVERLAP)
    assert (started(decision), taken_down(decision)) == (["a"], [])
    assert decide([want("a")], [old, copy(want("a"), Stage.WARMING, 2)], NODE, OVERLAP) == CopyDecision()
    assert taken_down(decide([want("a")], [old, copy(want("a"), number=2)], NODE, OVERLAP)) == ["a.1.1"]
    late = replace(NODE, called_away={"a.1.1"})
    decision = decide([want("a")], [old, copy(want("a"), Stage.WARMING, 2)], late, OVERLAP)
    assert [(going.copy, going.reason) for going in decision.take_down] == [("a.1.1", "called_away")]


def test_a_smaller_batch_needs_no_other_process_and_a_larger_one_does() -> None:
    there = copy(want("a", batch=Frame(8, 1, 16)))
    assert decide([want("a", batch=Frame(4, 1, 8))], [there], NODE, OVERLAP) == CopyDecision()
    assert started(decide([want("a", batch=Frame(8, 1, 32))], [there], NODE, OVERLAP)) == ["a"]


def test_in_overlap_the_copy_that_is_replaced_does_not_count_for_sms() -> None:
    there = [copy(want("a", 50)), copy(want("b", 47))]
    wanted = [want("a", 52), want("b", 47)]
    assert started(decide(wanted, there, NODE, OVERLAP)) == ["a"]
    decision = decide(wanted, there, NODE, STRICT)
    assert started(decision) == []
    assert reasons(decision) == {"a": "no_room_to_hand_over"}
    assert decision.held[0].missing.sm_percent == 49


def test_memory_counts_twice_while_two_copies_hold_it() -> None:
    there = [copy(want("a", 30, memory=9))]
    decision = decide([want("a", 40, memory=9)], there, NODE, OVERLAP)
    assert reasons(decision) == {"a": "no_room_to_hand_over"}
    assert decision.held[0].missing.memory_gib == pytest.approx(2)


def test_of_two_changes_the_one_that_makes_room_comes_first() -> None:
    there = [copy(want("a", 60)), copy(want("b", 40))]
    wanted = [want("b", 60), want("a", 40)]
    decision = decide(wanted, there, NODE, OVERLAP)
    assert started(decision) == ["a"]
    assert reasons(decision) == {"b": "no_room_to_hand_over"}


def test_one_hand_over_at_a_time_on_a_gpu() -> None:
    there = [copy(want("a", 20)), copy(want("b", 20)), copy(want("c", 20, gpu=OTHER))]
    wanted = [want("a", 25), want("b", 25), want("c", 25, gpu=OTHER)]
    assert started(decide(wanted, there, NODE, OVERLAP)) == ["a", "c"]


def test_no_third_copy_is_started_while_one_that_failed_is_on_its_way_out() -> None:
    there = [copy(want("a", 60)), copy(want("a", 70), Stage.ENDING, 2)]
    assert started(decide([want("a", 70)], there, NODE, OVERLAP)) == []
    assert started(decide([want("a", 70)], there[:1], NODE, OVERLAP)) == ["a"]


def test_two_that_want_each_others_room_in_strict_are_named_and_neither_is_stopped() -> None:
    there = [copy(want("a", 60)), copy(want("b", 40))]
    decision = decide([want("a", 40), want("b", 60)], there, NODE, STRICT)
    assert reasons(decision) == {"a": "no_room_to_hand_over", "b": "no_room_to_hand_over"}
    assert taken_down(decision) == []


def test_what_waits_for_a_copy_on_its_way_out_is_not_called_held_back() -> None:
    there = [copy(want("a", 80), Stage.DRAINING)]
    decision = decide([want("b", 50)], there, NODE, OVERLAP)
    assert (started(decision), reasons(decision)) == ([], {})


def test_what_never_fits_is_held_back_with_what_it_lacks() -> None:
    there = [copy(want("a", 80))]
    decision = decide([want("a", 80), want("b", 50)], there, NODE, OVERLAP)
    assert decision.held[0].missing.message == "needs 30 SM% more"


def test_a_copy_on_another_gpu_goes_when_its_successor_is_ready() -> None:
    there = [copy(want("a", gpu=GPU))]
    assert started(decide([want("a", gpu=OTHER)], there, NODE, OVERLAP)) == ["a"]
    there.append(copy(want("a", gpu=OTHER), Stage.READY, 2))
    assert taken_down(decide([want("a", gpu=OTHER)], there, NODE, OVERLAP)) == ["a.1.1"]


def test_an_instance_that_replaces_another_of_its_service_is_ready_before_that_goes() -> None:
    there = [copy(want("a", model="m"))]
    wanted = [want("b", model="n")]
    assert started(decide(wanted, there, NODE, OVERLAP)) == ["b"]
    assert taken_down(decide(wanted, there, NODE, OVERLAP)) == []
    there.append(copy(wanted[0], Stage.READY))
    assert taken_down(decide(wanted, there, NODE, OVERLAP)) == ["a.1.1"]


def test_an_instance_whose_only_room_is_that_of_its_predecessor_is_named() -> None:
    decision = decide([want("b", 60, model="n")], [copy(want("a", 60, model="m"))], NODE, STRICT)
    assert reasons(decision) == {"b": "no_room"}
    assert taken_down(decision) == []


def test_a_job_makes_room_before_its_next_copy_begins() -> None:
    there = [copy(job("t", 30))]
    decision = decide([job("t", 40)], there, NODE, OVERLAP)
    assert (started(decision), taken_down(decision)) == ([], ["t.1.1"])
    gone = [copy(job("t", 30), Stage.ENDING)]
    assert started(decide([job("t", 40)], gone, NODE, OVERLAP)) == []
    assert started(decide([job("t", 40)], [], NODE, OVERLAP)) == ["t"]


def test_services_come_before_jobs() -> None:
    assert started(decide([job("t", 60), want("a", 60)], [], NODE, OVERLAP)) == ["a"]


def test_without_contact_nothing_is_started_and_nothing_taken_down() -> None:
    silent = replace(NODE, contact=False)
    there = [copy(want("a", 30)), copy(want("b", 20)), copy(want("b", 25), Stage.READY, 2)]
    assert decide([want("a", 40), want("b", 25)], there, silent, OVERLAP) == CopyDecision()


def test_a_fenced_gpu_takes_nothing_new_and_keeps_what_it_has() -> None:
    fenced = replace(NODE, fenced={GPU: "xid_79"})
    decision = decide([want("a"), want("b"), want("c", gpu=OTHER)], [copy(want("a"))], fenced, OVERLAP)
    assert started(decision) == ["c"]
    assert reasons(decision) == {"b": "gpu_fenced"}


def test_a_recycled_gpu_is_emptied() -> None:
    recycled = replace(NODE, recycled=(GPU,))
    decision = decide([want("a"), want("b")], [copy(want("a"))], recycled, OVERLAP)
    assert (started(decision), taken_down(decision)) == ([], ["a.1.1"])
    assert reasons(decision)["b"] == "gpu_recycled", "what is missing is never missing without a reason"


def test_a_gpu_that_is_not_there_is_named() -> None:
    assert reasons(decide([want("a", gpu="")], [], NODE, OVERLAP)) == {"a": "no_gpu"}


def test_a_job_that_made_room_stays_away() -> None:
    stopped = replace(NODE, stopped_jobs=("t",))
    decision = decide([job("t")], [copy(job("t"))], stopped, OVERLAP)
    assert (started(decision), taken_down(decision)) == ([], ["t.1.1"])


STAGES = [stage for stage in Stage if stage not in (*AWAY, Stage.GONE)]  # of a service
SHARES = st.integers(1, 10).map(lambda tenth: tenth * 10)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), SHARES, SHARES, st.sampled_from(STAGES)), max_size=6),
    st.lists(st.tuples(st.sampled_from("abcd"), SHARES, SHARES), max_size=4, unique_by=lambda one: one[0]),
    st.booleans(),
)
def test_nothing_is_started_without_room_and_no_last_ready_copy_is_taken_down(
    there: list[tuple[str, int, int, Stage]], wanted: list[tuple[str, int, int]], overlap: bool
) -> None:
    copies = [
        copy(want(name, sm, memory=memory / 10), stage, number)
        for number, (name, sm, memory, stage) in enumerate(there)
    ]
    asked = [want(name, sm, memory=memory / 10) for name, sm, memory in wanted]
    decision = decide(asked, copies, NODE, GpuRules(overlap=overlap))
    if decision.start:
        after = [*copies, *(copy(start.wanted, Stage.STARTING, 99) for start in decision.start)]
        assert sum(one.wanted.memory_gib for one in after) <= 16 + 1e-6
        if not overlap:
            assert excess_sm_percent(after) == 0 or excess_sm_percent(after) == excess_sm_percent(copies)
    going = set(taken_down(decision))
    for name in {one.instance.id for one in asked}:
        ready = [one for one in copies if one.instance == name and one.stage is Stage.READY]
        assert not ready or any(one.id not in going for one in ready)


@pytest.mark.parametrize("stage", [Stage.STARTING, Stage.VERIFYING, Stage.WARMING])
def test_a_server_that_measures_free_memory_starts_alone_on_its_gpu(stage: Stage) -> None:
    node = replace(NODE, measuring=frozenset({"vllm"}))
    chat, plain = want("chat-1", template="vllm"), want("search-1")
    elsewhere = want("chat-2", gpu=OTHER, template="vllm")
    decision = decide([chat, plain, elsewhere], [], node, OVERLAP)
    assert [start.wanted.instance.id for start in decision.start] == ["chat-1", "chat-2"]
    for first, second in ((chat, plain), (plain, chat), (chat, want("chat-3", template="vllm"))):
        assert not decide([first, second], [copy(first, stage)], node, OVERLAP).start
        assert decide([first, second], [copy(first, Stage.READY)], node, OVERLAP).start
    assert decide([plain, want("search-2")], [copy(plain, stage)], node, OVERLAP).start
