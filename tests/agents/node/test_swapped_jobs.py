"""A node whose jobs make room by waiting in host memory, in virtual time: the guard, time limits, faults of MPS."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance, JobTerms
from agents.keeper.copies import NodeCopy, Stage
from agents.node import reporting
from agents.node.memory_guard import MemoryGuard
from tests.support.nodes import assigned, served
from tests.support.simulated_processes import Behaviour
from tests.support.soak import scaled
from tests.support.virtual import VirtualNode, job, virtual

TRAIN = msgspec.structs.replace(job("train", memory=2), terms=JobTerms(swaps=True))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[VirtualNode]:
    with virtual(tmp_path) as node:
        yield node


def offer(made: VirtualNode, *instances: AssignedInstance, swapped: tuple[AssignedInstance, ...] = ()) -> None:
    made.generation += 1
    made.node.offer(assigned(made.generation, *instances, swapped=swapped))


def begin(made: VirtualNode, instance: AssignedInstance = TRAIN) -> NodeCopy:
    """The job runs."""
    offer(made, instance)
    made.advance(10)
    assert made.ready == ["train"]
    return made.copy("train")


def gone(made: VirtualNode, copy: NodeCopy) -> NodeCopy:
    """What is still known of a copy that has ended."""
    return next(one for one in made.node.ledger.accounts() if one.id == copy.id and one.stage is Stage.GONE)


def test_the_guard_swaps_a_job_out_and_brings_it_back_to_its_process(made: VirtualNode) -> None:
    before = begin(made)
    made.offer(TRAIN, served("search", memory=15))
    made.advance(15)
    assert made.ready == ["search"]
    assert made.copy("train").stage is Stage.SWAPPED
    assert made.held == {}
    made.advance(60)
    assert made.copy("train").stage is Stage.SWAPPED, "there is no room for it"
    made.offer(TRAIN)
    made.advance(60)
    assert made.ready == ["train"]
    after = made.copy("train")
    assert (after.running, after.spell) == (before.running, 1)
    assert made.process("train").context.memory_gib == 1.8  # type: ignore[union-attr]


def test_without_contact_only_the_guard_moves_jobs(made: VirtualNode) -> None:
    before = begin(made)
    stranger = made.machine.attach(made.uuids[0], 7, 10, None, 14.1)
    made.node.set_contact(False)
    made.advance(20)
    assert made.copy("train").stage is Stage.SWAPPED
    made.machine.close(made.uuids[0], stranger)
    made.advance(60)
    assert made.ready == ["train"]
    assert made.copy("train").running == before.running
    offer(made, swapped=(TRAIN,))
    made.advance(20)
    assert made.ready == ["train"], "an assignment from before moves nothing"
    made.node.set_contact(True)
    made.advance(5)
    assert made.copy("train").stage is Stage.SWAPPED


def test_a_program_that_does_not_stop_itself_is_asked_to_save_and_ended(made: VirtualNode) -> None:
    made.behaviours["train"] = Behaviour(swaps=False)
    before = begin(made)
    offer(made, served("search", sm=90), swapped=(TRAIN,))
    made.advance(19)
    assert made.copy("train").stage is Stage.SWAPPING
    assert made.held == {}
    made.advance(20)
    assert made.ready == ["search"]
    ended = gone(made, before)
    assert (ended.reason, ended.message) == ("not_swapped", "it has not stopped itself 20 s after SIGTSTP")
    offer(made, TRAIN)
    made.advance(20)
    assert made.ready == ["train"], "it starts at once: nothing failed"


def test_a_program_that_stops_itself_and_keeps_its_memory_may_save_before_it_is_ended(made: VirtualNode) -> None:
    before = begin(made)
    process = made.process("train")
    offer(made, swapped=(TRAIN,))
    context = process.context
    assert context is not None
    for _ in made.passes(40):
        if process.swapped_gib is not None:
            context.memory_gib = 1.5
    assert gone(made, before).message == "it has stopped itself, and still holds 1.5 GiB of a GPU 20 s after SIGTSTP"
    assert process.exited_at is not None
    assert process.swapped_gib is None, "it was told to go on, or it could not have saved"


def test_a_job_may_take_as_long_to_move_as_to_save(made: VirtualNode) -> None:
    made.behaviours["train"] = Behaviour(swaps=False)
    slow = msgspec.structs.replace(TRAIN, terms=JobTerms(swaps=True, checkpoint_seconds=90))
    begin(made, slow)
    offer(made, swapped=(slow,))
    made.advance(80)
    assert made.copy("train").stage is Stage.SWAPPING
    made.advance(120)
    assert made.node.keeper.copies() == ()


def test_a_job_that_cannot_get_its_memory_back_is_started_again(made: VirtualNode) -> None:
    before = begin(made)
    offer(made, swapped=(TRAIN,))
    made.advance(5)
    process = made.process("train")
    process.swapped_gib = 99.0
    offer(made, TRAIN)
    made.advance(30)
    assert made.ready == ["train"]
    assert made.copy("train").id != before.id
    assert "error 2" in process.log
    assert made.node.keeper.exits("train") == 1


def test_when_its_daemon_fails_a_job_in_host_memory_is_ended_before_the_daemon_starts_again(made: VirtualNode) -> None:
    before = begin(made)
    offer(made, served("search", sm=90), swapped=(TRAIN,))
    made.advance(20)
    assert made.copy("train").stage is Stage.SWAPPED
    made.machine.mps_dies(made.uuids[0])
    made.advance(60)
    assert made.ready == ["search"]
    assert gone(made, before).reason in ("gpu_recycled", "exited")
    assert made.node.keeper.recycled == {}


def test_on_a_gpu_that_is_drained_no_job_waits(made: VirtualNode) -> None:
    begin(made)
    offer(made, swapped=(TRAIN,))
    made.advance(5)
    made.node.drain(None)
    made.advance(5)
    assert made.node.keeper.copies() == ()


def test_what_a_job_in_host_memory_still_holds_counts_as_a_strangers(made: VirtualNode) -> None:
    begin(made)
    offer(made, swapped=(TRAIN,))
    made.advance(5)
    context = made.process("train").context
    assert context is not None
    context.memory_gib = 0.5
    made.advance(10)
    guard: MemoryGuard = made.node.watch._memory
    assert guard.room_gib[made.uuids[0]] == pytest.approx(15.5)


def test_a_job_in_host_memory_is_asked_nothing_and_gets_no_knob(made: VirtualNode) -> None:
    begin(made)
    offer(made, swapped=(TRAIN,))
    made.advance(5)
    before = dict(made.node.counters._asked_at)
    made.advance(120)
    assert made.node.counters._asked_at == before
    assert made.node.report_body(*made.node.current_minute()).instances == ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(200, 20)))
def test_no_process_ever_fails_for_memory_while_jobs_come_and_go(tmp_path: Path, seed: int) -> None:
    lot = random.Random(seed)
    with virtual(tmp_path) as made:
        services = [served(name, sm=18, memory=lot.choice([6.0, 9.0, 13.0])) for name in "ab"]
        jobs = [msgspec.structs.replace(TRAIN, id=name, job=name, sm_percent=18) for name in "tuv"]
        for _ in range(10):
            wait = lot.sample(jobs, lot.randint(0, 3))
            run = [job for job in jobs if job not in wait and lot.random() < 0.8]
            offer(made, *run, *lot.sample(services, lot.randint(0, 2)), swapped=tuple(wait))
            made.node.set_contact(lot.random() < 0.9)
            for _ in made.passes(lot.choice([0.5, 2.0, 10.0, 40.0]), 0.25):
                assert made.machine.slots[made.uuids[0]].gpu.memory_used_gib <= 16 + 1e-6
                assert [one.log for one in made.machine.processes.values() if "error 2" in one.log] == []
            if lot.random() < 0.2:
                made.restart()
        for copy in made.node.ledger.accounts():
            told = reporting.usage(copy, {made.uuids[0]: 0})
            assert len({interval.id for interval in told}) == len(told)
            assert all(before.ended_at <= after.started_at for before, after in pairwise(told) if before.ended_at)
        made.node.set_contact(True)
        offer(made, *jobs)
        made.advance(150)
        assert made.ready == ["t", "u", "v"]
