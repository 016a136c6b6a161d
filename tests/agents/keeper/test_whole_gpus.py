"""An instance on several GPUs is one copy outside MPS. It has them alone, and is paid for on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.contract.assignments import AssignedInstance
from agents.contract.fits import GpuRules
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.decide import NodeConstraints, WantedInstance, decide
from agents.node import reporting
from tests.support.nodes import Machine, around, assigned, copy_of, machine, ready, running, served
from tests.support.patience import until

A, B, C = "GPU-a", "GPU-b", "GPU-c"
NODE = NodeConstraints(memory_gib={A: 16.0, B: 16.0, C: 16.0})
RULES = GpuRules()


def wide(name: str, *gpus: str, indexes: tuple[int, ...] = (0, 1), memory: float = 12) -> WantedInstance:
    instance = served(name, indexes[0], sm=100, memory=memory, gpus=indexes)
    return WantedInstance(instance, gpus[0], gpus)


def narrow(name: str, gpu: str, index: int = 0) -> WantedInstance:
    return WantedInstance(served(name, index, sm=10, memory=1), gpu)


def there(want: WantedInstance, stage: Stage = Stage.READY) -> NodeCopy:
    return NodeCopy(f"{want.instance.id}.1.1", want.instance, want.gpu, stage, largest_batch=8, gpus=want.gpus)


def test_it_starts_where_all_its_gpus_are_empty() -> None:
    decision = decide([wide("chat-1", A, B)], [], NODE, RULES)
    assert [start.wanted.gpus for start in decision.start] == [(A, B)]


@pytest.mark.parametrize("guest", [A, B])
def test_nothing_else_starts_on_any_of_its_gpus_nor_it_beside_anything(guest: str) -> None:
    chat, search = wide("chat-1", A, B), narrow("search-1", guest)
    for first, second in ((chat, search), (search, chat)):
        (held,) = decide([first, second], [there(first)], NODE, RULES).held
        assert (held.instance, held.missing.reason) == (second.instance.id, "whole_gpus")
        assert held.missing.message == f"{first.instance.id} is still on the GPU, and one of the two needs it whole"
    assert decide([chat, narrow("search-1", C, 2)], [there(chat)], NODE, RULES).held == ()


def test_its_memory_is_needed_on_each_gpu() -> None:
    small = NodeConstraints(memory_gib={A: 16.0, B: 8.0})
    (held,) = decide([wide("chat-1", A, B)], [], small, RULES).held
    assert (held.missing.reason, held.missing.memory_gib) == ("no_room", 4.0)


def test_a_gpu_that_is_missing_fenced_or_recycled_keeps_it_from_starting() -> None:
    (held,) = decide([wide("chat-1", A, "", indexes=(0, 7))], [], NODE, RULES).held
    assert (held.missing.reason, held.missing.message) == ("no_gpu", "this node has no GPU 7")
    fenced = NodeConstraints(NODE.memory_gib, fenced={B: "xid_79"})
    (held,) = decide([wide("chat-1", A, B)], [], fenced, RULES).held
    assert held.missing.reason == "gpu_fenced"
    recycled = NodeConstraints(NODE.memory_gib, recycled=(B,))
    decision = decide([wide("chat-1", A, B)], [there(wide("chat-1", A, B))], recycled, RULES)
    assert [move.reason for move in decision.take_down] == ["gpu_recycled"]


def test_on_other_gpus_it_is_another_copy() -> None:
    before, after = wide("chat-1", A, B), wide("chat-1", A, C, indexes=(0, 2))
    decision = decide([after], [there(before)], NODE, RULES)
    assert decision.start == ()
    (held,) = decision.held
    assert held.missing.reason == "no_room_to_hand_over"


def test_its_usage_is_of_each_gpu_and_the_last_interval_has_its_name() -> None:
    began = datetime(2026, 3, 1, tzinfo=UTC)
    copy = NodeCopy("chat-1.1.1", wide("chat-1", A, B).instance, A, Stage.READY, gpus=(A, B), started_at=began)
    found = reporting.usage(copy, {A: 0, B: 1, C: 2})
    assert [(interval.id, interval.gpu, interval.gpu_uuid) for interval in found] == [
        ("chat-1.1.1@1", 1, B),
        ("chat-1.1.1", 0, A),
    ]
    assert {reporting.name_first_gpu_usage(interval.id) for interval in found} == {copy.id}
    assert reporting.usage(copy, {A: 0}) == found, "a device that is gone has the index that it was assigned by"


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path) as made:
        yield made


def assert_is_outside_mps(environment: Mapping[str, str]) -> None:
    """Without a pipe directory CUDA looks for a daemon in /tmp/nvidia-mps, which anybody can start."""
    (name,) = [name for name in environment if name.startswith("CUDA_MPS")]
    pipe = Path(environment[name])
    assert name == "CUDA_MPS_PIPE_DIRECTORY"
    with pytest.raises(OSError, match=str(pipe)):
        pipe.mkdir()


@pytest.mark.slow
def test_a_real_copy_sees_its_gpus_and_no_mps_and_makes_room_for_others_once_it_is_gone(two: Machine) -> None:
    first, second = two.uuids
    chat = served("chat-1", sm=100, memory=12, gpus=(0, 1), template="gpuwright-llm", args={"cost": "baseMs=1"})
    with running(two) as node:
        node.offer(assigned(1, chat, served("search-1", 1)))
        until(lambda: ready(node, "chat-1"), "it is ready")
        copy = copy_of(node, "chat-1")
        assert copy.running is not None
        lines = Path(f"/proc/{copy.running.pid}/environ").read_text().split("\0")
        environment = dict(line.split("=", 1) for line in lines if line)
        assert environment["CUDA_VISIBLE_DEVICES"] == f"{first},{second}"
        assert_is_outside_mps(environment)
        assert [held.missing.reason for held in node.keeper.held] == ["whole_gpus"]
        node.offer(assigned(2, served("search-1", 1)))
        until(lambda: ready(node, "search-1"), "the other one is ready")
        other = copy_of(node, "search-1")
        assert other.running is not None
        assert other.running.pid in around(two.folder).drivers.mps.clients(second)


@pytest.mark.slow
def test_a_real_job_on_two_gpus_sees_both_and_no_mps_and_trains(two: Machine) -> None:
    first, second = two.uuids
    job = AssignedInstance(
        "train-1", 0, "lab", job="train", template="gpuwright-train", sm_percent=100, memory_gib=12, gpus=(0, 1),
        args={"speeds": "100:50", "steps": 1_000_000},
    )  # fmt: skip
    with running(two) as node:
        node.offer(assigned(1, job))
        until(lambda: ready(node, "train-1"), "it runs")
        copy = copy_of(node, "train-1")
        assert copy.running is not None
        lines = Path(f"/proc/{copy.running.pid}/environ").read_text().split("\0")
        environment = dict(line.split("=", 1) for line in lines if line)
        assert environment["CUDA_VISIBLE_DEVICES"] == f"{first},{second}"
        assert_is_outside_mps(environment)

        def steps() -> float:
            (line,) = node.report_body(*node.current_minute()).instances
            return line.steps

        until(lambda: steps() > 0, "it trains")
