"""Jobs that wait in host memory while a service has their GPU: real processes that go on where they were."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance, Assignment, JobTerms
from agents.contract.reports import UsageInterval
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.swapping import host_free_gib
from agents.node.node import LocalNode
from agents.runtime import Running, proc
from tests.support.needs import skip_in_ci_too
from tests.support.nodes import Machine, around, assigned, copy_of, kill, machine, ready, served
from tests.support.patience import patience, until
from tests.support.trainers import agent_on, trainer

pytestmark = pytest.mark.slow

TRAIN = """\
argv: ["{python}", -I, -m, agents.programs.train.main, "--port={port}", "--speeds=10:200", "--memory-gib={gib}",
       "--checkpoint=%s", "--checkpoint-seconds=3600"]
args:
  gib: {type: number, min: 0, max: 200, default: 1.5}
health: {path: /healthz}
metrics: {kind: gpuwright, path: /metrics}
checkpointSignal: SIGTERM
"""
JOB = trainer(0, args={}, memory_gib=2, sm_percent=60, terms=JobTerms(swaps=True))
SERVICE = served("search-1", sm=60, memory=15)
SERVES = assigned(2, SERVICE, swapped=(JOB,))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path, ["v100-16gb"]) as made:
        made.template("trainer", TRAIN % (tmp_path / "saved.json"))
        yield made


def stage_of(node: LocalNode, name: str = "tune-1") -> Stage | None:
    return next((copy.stage for copy in node.keeper.copies() if copy.instance == name), None)


def process_of(copy: NodeCopy) -> Running:
    assert copy.running is not None
    return copy.running


def steps(node: LocalNode) -> float:
    """What the process says of itself now."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{copy_of(node, 'tune-1').port}/metrics", timeout=patience()
    ) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("gpuwright_train_steps_total"))


def saved(made: Machine) -> int:
    return int(json.loads((made.folder / "saved.json").read_text())["steps"])


def held_gib(made: Machine, pid: int) -> float:
    """What a process holds of the GPU."""
    listed = around(made.folder).drivers.device.processes(made.uuids[0])
    return next(one.memory_gib or 0.0 for one in listed if one.pid == pid)


def starts_printed(made: Machine, copy: NodeCopy) -> int:
    return around(made.folder).drivers.runtime.log_tail(copy.id).count("step ")


def begin(node: LocalNode) -> NodeCopy:
    """The job runs, and has made some steps."""
    node.offer(assigned(1, JOB))
    until(lambda: ready(node, "tune-1") and steps(node) > 20, "it runs")
    return copy_of(node, "tune-1")


def swap_out(node: LocalNode, assignment: Assignment = SERVES) -> NodeCopy:
    node.offer(assignment)
    until(lambda: stage_of(node) is Stage.SWAPPED, "it waits in host memory")
    return copy_of(node, "tune-1")


def usage(node: LocalNode) -> list[UsageInterval]:
    """What is reported now of the job, and then acknowledged."""
    told = node.report_body(*node.current_minute()).usage
    node.acknowledge(told, ())
    return [interval for interval in told if interval.job]


def test_a_job_gives_its_gpu_to_a_service_and_goes_on_in_the_same_process(one: Machine) -> None:
    with agent_on(one) as node:
        before = begin(node)
        pid = process_of(before).pid
        swap_out(node)
        assert proc.read_process(pid).stopped  # type: ignore[union-attr]
        assert held_gib(one, pid) == 0
        kept = saved(one)
        assert kept > 20
        until(lambda: stage_of(node, "search-1") is Stage.READY, "the service has its GPU")
        body = node.report_body(*node.current_minute())
        assert {(copy.instance, copy.stage) for copy in body.copies} == {("tune-1", "swapped"), ("search-1", "ready")}
        node.offer(assigned(3, JOB))
        until(lambda: ready(node, "tune-1"), "the service has gone, and the job is back")
        after = copy_of(node, "tune-1")
        assert (after.id, after.running) == (before.id, before.running)
        assert held_gib(one, pid) == 1.5
        until(lambda: steps(node) > kept + 20, "it goes on")
        assert starts_printed(one, after) == 1
        swap_out(node, assigned(4, swapped=(JOB,)))
        assert saved(one) > kept, "it can be swapped out again"


def test_the_progress_of_the_minute_is_told_and_a_minute_of_waiting_is_not(one: Machine) -> None:
    with agent_on(one) as node:
        begin(node)
        swap_out(node, assigned(2, swapped=(JOB,)))
        minute = node.watch.minute

        def told() -> float:
            node.watch.tick()
            (line,) = node.report_body(minute, node.counters.totals).instances
            return line.saved_steps

        until(lambda: told() == saved(one), "what it saved last is reported")
        waited = msgspec.structs.replace(copy_of(node, "tune-1"), ended_at=minute.began.replace(year=2000))
        assert not minute.has_run(waited)


def test_a_job_that_is_killed_while_it_waits_starts_again_from_its_save(one: Machine) -> None:
    with agent_on(one) as node:
        before = begin(node)
        swap_out(node)
        kill(process_of(before).pid)
        until(lambda: ready(node, "search-1"), "it is gone")
        kept = saved(one)
        assert node.keeper.exits("tune-1") == 1
        node.offer(assigned(3, JOB))
        until(lambda: ready(node, "tune-1"), "it is started again")
        assert copy_of(node, "tune-1").id != before.id
        assert steps(node) >= kept


def test_a_job_that_ends_for_good_while_it_waits_is_told_as_over(one: Machine) -> None:
    terms = JobTerms(swaps=True, failed_codes=(137,))
    job = msgspec.structs.replace(JOB, terms=terms)
    with agent_on(one) as node:
        node.offer(assigned(1, job))
        until(lambda: ready(node, "tune-1") and steps(node) > 20, "it runs")
        kill(process_of(swap_out(node, assigned(2, SERVICE, swapped=(job,)))).pid)

        def told() -> list[tuple[str, str, int]]:
            held = node.report_body(*node.current_minute()).held_back
            return [(line.instance, line.reason, line.exit_code) for line in held if line.instance == "tune-1"]

        until(lambda: told() == [("tune-1", "job_failed", 137)], "the control plane learns that it has failed")
        node.offer(assigned(3, SERVICE))
        until(lambda: told() == [], "it is not assigned any longer")


def test_a_restarted_agent_keeps_a_job_in_host_memory_and_brings_it_back(one: Machine) -> None:
    with agent_on(one) as node:
        before = begin(node)
        swap_out(node)
        until(lambda: stage_of(node, "search-1") is Stage.READY, "the service has its GPU")
    with agent_on(one, 2) as node:
        node.offer(SERVES)
        until(lambda: node.keeper.held == () and stage_of(node, "search-1") is Stage.READY, "it has looked")
        assert copy_of(node, "tune-1").stage is Stage.SWAPPED
        node.offer(assigned(3, JOB))
        until(lambda: ready(node, "tune-1"), "it is back")
        assert copy_of(node, "tune-1").running == before.running
        assert starts_printed(one, before) == 1


@pytest.mark.parametrize("stage", [Stage.SWAPPING, Stage.RETURNING])
def test_an_agent_that_was_killed_in_the_middle_goes_on_with_it(one: Machine, stage: Stage) -> None:
    with agent_on(one) as node:
        before = begin(node)
        if stage is Stage.RETURNING:
            before = swap_out(node, assigned(2, swapped=(JOB,)))
    line = msgspec.json.encode(before.at(stage, before.since)) + b"\n"
    with (one.folder / "state" / "journal.jsonl").open("ab") as journal:
        journal.write(line)
    with agent_on(one, 2) as node:
        if stage is Stage.SWAPPING:
            swap_out(node, assigned(2, swapped=(JOB,)))
        node.offer(assigned(3, JOB))
        until(lambda: ready(node, "tune-1"), "it is back")
        assert copy_of(node, "tune-1").running == before.running


def test_a_job_that_is_ended_while_it_waits_is_gone_at_once_and_has_saved(one: Machine) -> None:
    with agent_on(one) as node:
        before = begin(node)
        swap_out(node)
        until(lambda: stage_of(node, "search-1") is Stage.READY, "the service has its GPU")
        neighbour = copy_of(node, "search-1")
        kept = saved(one)
        node.offer(assigned(3, SERVICE))
        until(lambda: ready(node, "search-1"), "it is gone")
        assert one.copies() == [process_of(neighbour).pid]
        assert saved(one) == kept
        assert copy_of(node, "search-1") == neighbour
        assert process_of(before).pid not in one.copies()


def test_a_job_that_does_not_fit_into_the_hosts_memory_is_ended_as_ever(tmp_path: Path) -> None:
    if host_free_gib() > 100:
        skip_in_ci_too("this machine has room for any job in its memory")
    with machine(tmp_path, ["h200-141gb"]) as made:
        made.template("trainer", TRAIN % (tmp_path / "saved.json"))
        with agent_on(made) as node:
            large: AssignedInstance = msgspec.structs.replace(JOB, memory_gib=120)
            node.offer(assigned(1, large))
            until(lambda: ready(node, "tune-1") and steps(node) > 20, "it runs")
            before = copy_of(node, "tune-1")
            node.offer(assigned(2, swapped=(large,)))
            until(lambda: not node.keeper.copies(), "it has ended")
            (gone,) = [copy for copy in node.ledger.accounts() if copy.id == before.id]
            assert gone.reason == "not_swapped"
            assert "121.0 GiB are needed" in gone.message
            assert saved(made) > 20


def test_each_time_that_a_job_holds_its_gpu_is_told_once(one: Machine) -> None:
    with agent_on(one) as node:
        copy = begin(node)
        (opened,) = usage(node)
        assert (opened.id, opened.ended_at) == (copy.id, None)
        swap_out(node, assigned(2, swapped=(JOB,)))
        (closed,) = usage(node)
        assert (closed.id, closed.started_at) == (copy.id, opened.started_at)
        assert closed.ended_at is not None
        assert usage(node) == []
        node.offer(assigned(3, JOB))
        until(lambda: ready(node, "tune-1"), "it is back")
        (second,) = usage(node)
        assert (second.id, second.ended_at) == (f"{copy.id}+1", None)
        assert second.started_at >= closed.ended_at
        # Two more returns before the next report.
        for generation in (4, 6):
            swap_out(node, assigned(generation, swapped=(JOB,)))
            node.offer(assigned(generation + 1, JOB))
            until(lambda: ready(node, "tune-1"), "it is back")
    with agent_on(one, 2) as node:
        node.offer(assigned(7, JOB))
        told = usage(node)
        assert [(one.id, one.ended_at is None) for one in told] == [
            (f"{copy.id}+1", False), (f"{copy.id}+2", False), (f"{copy.id}+3", True),
        ]  # fmt: skip
        assert all(before.ended_at <= after.started_at for before, after in pairwise(told))  # type: ignore[operator]
        assert usage(node) == []
        swap_out(node, assigned(8, swapped=(JOB,)))
        node.offer(assigned(9))
        until(lambda: not node.keeper.copies(), "it is gone")
        (last,) = usage(node)
        assert last.id == f"{copy.id}+3"
        assert node.ledger.accounts() == ()
