"""The keeper with real copies on simulated GPUs: up under limits, changed without a gap, down in order."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from agents.keeper.copies import Stage
from agents.runtime import proc
from agents.talk.copy_client import TcpCopyClient
from agents.templates import Probe
from tests.support.nodes import Machine, around, assigned, copy_of, kill, machine, ready, running, served
from tests.support.patience import until

pytestmark = pytest.mark.slow


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path) as made:
        yield made


def test_an_instance_comes_up_under_its_limit_and_goes_in_order(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1", sm=30)))
        until(lambda: ready(node, "search-1"), "it is ready")
        copy = copy_of(node, "search-1")
        assert copy.running is not None
        drivers = around(one.folder).drivers
        assert copy.running.pid in drivers.mps.clients(copy.gpu)
        filled = node.keeper.filler.filled(copy)
        assert filled is not None
        seen = drivers.talk.served(copy.listens_at, filled)
        assert seen is not None
        assert seen.sm_count == 24  # 30 % of 80
        node.offer(assigned(2))
        until(lambda: not node.keeper.copies(), "it is gone")
        assert one.copies() == []


def test_another_share_is_handed_over_with_a_ready_copy_throughout(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1", sm=30)))
        until(lambda: ready(node, "search-1"), "it is ready")
        before = copy_of(node, "search-1").id
        node.offer(assigned(2, served("search-1", sm=50)))
        gaps = 0

        def handed_over() -> bool:
            nonlocal gaps
            copies = node.keeper.copies()
            gaps += not any(copy.stage is Stage.READY for copy in copies)
            return ready(node, "search-1") and copies[0].wanted.sm_percent == 50

        until(handed_over, "the new copy has taken over")
        assert copy_of(node, "search-1").id != before
        assert gaps == 0
        assert len(one.copies()) == 1


def test_a_copy_that_dies_is_replaced(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
        assert first.running is not None
        kill(first.running.pid)
        until(lambda: ready(node, "search-1") and copy_of(node, "search-1").id != first.id, "another took its place")


def test_a_restarted_agent_keeps_what_runs(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
    with running(one, incarnation=2) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready still")
        assert copy_of(node, "search-1").running == first.running


def test_only_agents_of_this_node_control_a_copy(one: Machine) -> None:
    stranger = TcpCopyClient()
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        copy = copy_of(node, "search-1")
        for probe in (
            Probe("POST", "/v1/drain"),
            Probe("PUT", "/v1/batch", '{"batch": 1}'),
            Probe("POST", "/v1/warmup"),
        ):
            assert stranger.ask(copy.listens_at, probe).status == 401
    with running(one, incarnation=2) as node:
        filled = node.keeper.filler.fill(copy)
        assert filled.set_batch is not None
        assert around(one.folder).drivers.talk.ask(copy.listens_at, filled.set_batch, batch=2, batch_timeout_ms=0).ok
        node.offer(assigned(2))
        until(lambda: not node.keeper.copies(), "the next agent has drained it")
    assert stat.S_IMODE((one.folder / "state" / "control.key").stat().st_mode) == 0o600


def test_what_ended_while_nobody_looked_held_its_share_until_an_agent_last_recorded_something(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
    assert first.running is not None
    kill(first.running.pid)
    until(lambda: one.copies() == [], "it has ended")
    state = one.folder / "state"
    recorded = datetime.fromtimestamp((state / "journal.jsonl").stat().st_mtime, UTC)
    (state / "looked").touch()
    os.utime(state / "looked", (0, 0))
    with running(one, incarnation=2, heard=False) as node:
        (gone,) = [copy for copy in node.ledger.accounts() if copy.id == first.id]
        assert (gone.ended_at, gone.evidence) == (recorded, "restart")


@pytest.mark.parametrize("what", ["pid", "boot"])
def test_case_16_whoever_has_the_pid_of_a_copy_now_is_let_alone_and_the_copy_is_replaced(
    one: Machine, what: str
) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
    assert first.running is not None
    kill(first.running.pid)
    until(lambda: one.copies() == [], "it has ended")
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        now = proc.read_process(stranger.pid)
        assert now is not None
        held = replace(first.running, pid=stranger.pid)  # started at another time
        if what == "boot":
            held = replace(held, start_ticks=now.start_ticks, boot_id="before the machine was started")
        taken = msgspec.structs.replace(first, running=held)
        (one.folder / "state" / "journal.jsonl").write_bytes(msgspec.json.encode(taken) + b"\n")
        with running(one, incarnation=2) as node:
            node.offer(assigned(2, served("search-1", sm=40)))
            until(lambda: ready(node, "search-1") and copy_of(node, "search-1").id != first.id, "another serves")
            node.offer(assigned(3))
            until(lambda: not node.keeper.copies(), "all are gone")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
