"""Faults of machine and neighbours: what serves goes on serving, and nothing ever runs without its limit."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance
from agents.keeper import ports
from agents.keeper.copies import NodeCopy, Stage
from agents.node.node import LocalNode
from agents.runtime import LaunchError, Running
from agents.runtime.process import ProcessRuntime
from tests.support.nodes import Machine, around, assigned, copy_of, kill, machine, ready, running, served
from tests.support.patience import until

OWN_HOST = "127.0.9.1"  # loopback, where no copy of another test listens
STUBBORN = """\
about: It neither drains nor hears SIGTERM, and stays when its client is terminated.
argv: ["{python}", -I, -m, tests.support.stubborn]
startSeconds: 30
drainSeconds: 0.5
"""
NEVER_WARM = """\
about: It answers and never gets warm. It opens no device, or a busy machine might miss its connection to MPS first.
usesGpu: false
argv: ["{python}", -I, -m, agents.programs.serve.main, "--port={port}", "--name=m", "--latency=1:100=1"]
health: {path: /healthz}
warmUp: {path: /no-such-page}
startSeconds: 4
drainSeconds: 1
"""
OUTSIDE = """\
about: It sleeps, and never opens the device through MPS.
argv: ["{python}", -I, -c, "import time; time.sleep(600)"]
startSeconds: 0.5
drainSeconds: 0.5
"""
HANGS = """\
about: It answers that it is there, and takes ten minutes to answer once.
argv: ["{python}", -I, -m, agents.programs.serve.main, "--port={port}", "--name=m", "--latency=1:100=600000"]
health: {path: /healthz}
warmUp: {method: POST, path: "/v1/models/m:infer", body: "x", seconds: 600}
startSeconds: 600
drainSeconds: 1
"""


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path) as made:
        yield made


def held(node: LocalNode) -> dict[str, str]:
    return {one.instance: one.missing.reason for one in node.keeper.held}


def use(template: str, instance: AssignedInstance) -> AssignedInstance:
    return msgspec.structs.replace(instance, template=template, args={})


def all_limited(made: Machine, node: LocalNode) -> bool:
    """Whether every process that runs for a ready copy is a client of its GPU's daemon."""
    mps = around(made.folder).drivers.mps
    copies = [copy for copy in node.keeper.copies() if copy.stage is Stage.READY and copy.running]
    return all(copy.running is not None and copy.running.pid in mps.clients(copy.gpu) for copy in copies)


@pytest.mark.slow
def test_a_node_without_a_free_port_serves_on_and_says_why_it_starts_nothing(
    one: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(one, host=OWN_HOST) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = ports.FIRST_PORT
        monkeypatch.setattr(ports, "LAST_PORT", first + 199)  # as many as it tries
        with ExitStack() as taken:
            for port in range(first, first + 200):
                with suppress(OSError):
                    taken.enter_context(socket.create_server((OWN_HOST, port)))
            node.offer(assigned(2, served("search-1"), served("images-1", gpu=1)))
            until(lambda: held(node) == {"images-1": "no_port"}, "it says so")
            assert ready(node, "search-1")
            node.offer(assigned(3, served("images-1", gpu=1)))
            until(lambda: held(node) == {"images-1": "no_port"} and not node.keeper.copies(), "what is not wanted ends")
        until(lambda: ready(node, "images-1"), "a port is free again")


@pytest.mark.slow
def test_case_8_without_the_control_plane_it_serves_on_and_starts_nothing_new(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        node.set_contact(False)
        node.offer(assigned(2, served("search-1", sm=50), served("images-1", gpu=1)))
        stays(lambda: ready(node, "search-1") and copy_of(node, "search-1").wanted.sm_percent == 30)
        node.set_contact(True)
        until(lambda: ready(node, "images-1", "search-1"), "what was decided meanwhile is done")


@pytest.mark.slow
def test_case_8_what_dies_meanwhile_is_started_again(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
        assert first.running is not None
        node.set_contact(False)
        kill(first.running.pid)
        until(lambda: ready(node, "search-1") and copy_of(node, "search-1").id != first.id, "it serves again")


@pytest.mark.slow
def test_case_9_an_agent_that_returns_touches_nothing_before_it_was_heard(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
    with running(one, incarnation=2, heard=False) as node:
        node.offer(assigned(1))  # as its disk has it: older than what is decided meanwhile
        stays(lambda: ready(node, "search-1"))
        body = node.report_body(*node.current_minute())
        assert [(copy.id, copy.stage) for copy in body.copies] == [(first.id, "ready")]
        node.offer(assigned(2, served("search-1")))
        node.set_contact(True)
        stays(lambda: copy_of(node, "search-1").running == first.running)


@pytest.mark.slow
def test_case_12_a_shadow_that_does_not_fit_leaves_the_old_copy_alone(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1", memory=9)))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
        node.offer(assigned(2, served("search-1", sm=40, memory=9)))
        until(lambda: held(node) == {"search-1": "no_room_to_hand_over"}, "it is held back")
        (said,) = node.report_body(*node.current_minute()).held_back
        assert said.needs_memory_gib == pytest.approx(2, abs=0.1)
        assert node.keeper.copies() == (first,)


@pytest.mark.slow
def test_case_12_a_shadow_that_never_gets_warm_leaves_the_old_copy_alone(one: Machine) -> None:
    one.template("never-warm", NEVER_WARM)
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
        node.offer(assigned(2, use("never-warm", served("search-1"))))
        until(lambda: held(node) == {"search-1": "not_warm"}, "its failure is told")
        assert next(copy for copy in node.keeper.copies() if copy.id == first.id).stage is Stage.READY
        assert first.running is not None
        assert first.running.pid in one.copies()


@pytest.mark.slow
def test_copies_that_hang_on_their_way_up_hold_up_nobodys_way_up_or_down(one: Machine) -> None:
    """Theirs is the longest wait that a template allows: whoever was taken over, or is merely stuck, uses all of it."""
    one.template("hangs", HANGS)
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        stuck = [use("hangs", served(f"stuck-{number}", gpu=1, sm=5, memory=0.5)) for number in range(10)]
        node.offer(assigned(2, served("search-1"), *stuck))

        def all_hang() -> bool:
            return sum(copy.stage is Stage.WARMING for copy in node.keeper.copies()) == len(stuck)

        until(all_hang, "they hang")
        node.offer(assigned(3, served("images-1"), *stuck))
        until(lambda: copy_of_stage(node, "images-1") is Stage.READY, "another serves")
        until(lambda: all(copy.instance != "search-1" for copy in node.keeper.copies()), "it is gone")
        assert all_hang()
        node.offer(assigned(4))
        for pid in one.copies():
            kill(pid)
        until(lambda: not node.keeper.copies(), "the others are gone, too")


class Unheard(ProcessRuntime):
    """Nobody hears that a copy is warm, as while the API server of a cluster is away."""

    is_heard = False

    def announce(self, running: Running) -> None:
        if not self.is_heard:
            raise LaunchError("nobody hears it")


@pytest.mark.slow
def test_a_warm_copy_that_cannot_be_announced_says_so_and_gets_no_requests_before(
    one: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = Unheard(one.folder / "copies")
    with running(one, runtime=runtime) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: "which is warming, failed, and is taken again: nobody hears it" in caplog.text, "it is said")
        assert copy_of(node, "search-1").stage is Stage.WARMING
        runtime.is_heard = True
        until(lambda: ready(node, "search-1"), "it serves")


def copy_of_stage(node: LocalNode, name: str) -> Stage | None:
    """The stage of an instance's copy, once there is one."""
    return next((copy.stage for copy in node.keeper.copies() if copy.instance == name), None)


@pytest.mark.slow
def test_case_13_only_the_gpu_that_is_lost_suffers(one: Machine) -> None:
    first, second = one.uuids
    with running(one) as node:
        node.offer(assigned(1, served("search-1", gpu=0), served("images-1", gpu=1)))
        until(lambda: ready(node, "images-1", "search-1"), "both are ready")
        kept = copy_of(node, "search-1")
        one.switches.turn("lose", second)
        until(lambda: held(node) == {"images-1": "gpu_fenced"}, "nothing is started there any more")
        until(lambda: [copy.instance for copy in node.keeper.copies()] == ["search-1"], "the dead copy is gone")
        assert node.keeper.copies() == (kept,)
        lost, well = node.watch.devices.verdicts[second], node.watch.devices.verdicts[first]
        assert lost.reason in ("lost", "xid_79")  # the driver may say it first
        assert (lost.fenced, well.health) == (True, "ok")
        one.switches.turn("give_back", second)
        until(lambda: second in {gpu.uuid for gpu in around(one.folder).drivers.device.gpus()}, "it is back")
        stays(lambda: node.watch.devices.verdicts[second].fenced)  # it flaps, for all anybody knows
        assert node.watch.indexes == {0: first, 1: second}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["mps_dies", "mps_faults"])
def test_case_14_after_a_fault_of_mps_everything_is_limited_again(one: Machine, fault: str) -> None:
    _, second = one.uuids
    with running(one) as node:
        node.offer(assigned(1, served("search-1", gpu=0), served("images-1", gpu=1)))
        until(lambda: ready(node, "images-1", "search-1"), "both are ready")
        kept, victim = copy_of(node, "search-1"), copy_of(node, "images-1")
        one.switches.turn(fault, second)
        until(
            lambda: ready(node, "images-1", "search-1") and copy_of(node, "images-1").id != victim.id,
            "the victim runs anew",
        )
        assert copy_of(node, "search-1") == kept
        assert all_limited(one, node)


@pytest.mark.slow
def test_what_opens_the_device_without_mps_is_never_used(one: Machine) -> None:
    one.template("outside", OUTSIDE)
    with running(one) as node:
        node.offer(assigned(1, use("outside", served("search-1"))))
        until(lambda: held(node) == {"search-1": "not_under_mps"}, "it is refused")
        until(lambda: one.copies() == [], "and ended")


@pytest.mark.slow
def test_case_15_a_client_that_does_not_hear_is_cut_off_or_killed_without_harm_to_its_neighbours(one: Machine) -> None:
    one.template("stubborn", STUBBORN)
    _, second = one.uuids
    with running(one) as node:
        stubborn = [use("stubborn", served(f"deaf-{gpu}", gpu=gpu, sm=20)) for gpu in (0, 1)]
        others = [served(f"search-{gpu}", gpu=gpu) for gpu in (0, 1)]
        node.offer(assigned(1, *stubborn, *others))
        until(lambda: ready(node, "deaf-0", "deaf-1", "search-0", "search-1"), "all are ready")
        before = {copy.instance: copy.id for copy in node.keeper.copies()}
        one.switches.turn("mps_terminates", second, False)
        node.offer(assigned(2, *others))
        until(lambda: copy_gone(node, before["deaf-0"]) and copy_gone(node, before["deaf-1"]), "both are gone")
        until(lambda: ready(node, "search-0", "search-1"), "their neighbours serve")
        assert {copy.instance: copy.id for copy in node.keeper.copies()}.items() <= before.items()
        assert all_limited(one, node)
        assert len(one.copies()) == 2


def copy_gone(node: LocalNode, name: str) -> bool:
    return all(copy.id != name for copy in node.keeper.copies())


@pytest.mark.slow
def test_case_18_a_clock_that_jumps_ends_nothing(one: Machine) -> None:
    moment = datetime(2026, 6, 1, tzinfo=UTC)
    with running(one, date=lambda: moment) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
        for jump in (timedelta(hours=1), timedelta(hours=-2), timedelta(days=-3000)):
            moment += jump
            stays(lambda: node.keeper.copies() == (first,))
        node.offer(assigned(2, served("search-1", sm=50)))
        until(lambda: ready(node, "search-1") and copy_of(node, "search-1").id != first.id, "it is handed over")


@pytest.mark.soak  # it is looked at every ten seconds, and three times before it is given up
def test_a_stopped_copy_is_found_out_and_replaced(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        frozen: NodeCopy = copy_of(node, "search-1")
        assert frozen.running is not None
        os.kill(frozen.running.pid, signal.SIGSTOP)
        until(lambda: copy_of_other(node, frozen.id), "another serves")
        os.kill(frozen.running.pid, signal.SIGCONT)


def copy_of_other(node: LocalNode, name: str) -> bool:
    return any(copy.id != name and copy.stage is Stage.READY for copy in node.keeper.copies())


def stays(holds: Callable[[], bool], seconds: float = 0.5) -> None:
    """It holds, and goes on holding."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert holds()
        time.sleep(0.02)
