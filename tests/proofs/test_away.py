"""Case 8 in a hand-over: while gateway or control plane is away both copies stay, and serve; it is finished later."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from agents.keeper.copies import Stage
from agents.node.adoption import instance_of
from agents.node.node import LocalNode
from agents.runtime.process import ProcessRuntime
from agents.templates import Probe
from tests.proofs.kills import Site, site
from tests.support.haproxy import Gateway, running_gateway
from tests.support.load import steady_load
from tests.support.nodes import Machine, around, assigned, copy_of, kill, machine, ready, running, served
from tests.support.patience import until
from tests.support.server import RunningServer
from tests.support.soak import SOAK, scaled

pytestmark = pytest.mark.slow

INFER = Probe("POST", "/v1/models/resnet:infer", body="{}", seconds=10.0)
SLOW = "1:10=300,100=300;8:10=300,100=300"  # so that a copy that drains has requests to answer yet


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path / "node", ["v100-16gb"]) as made:
        yield made


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with running_gateway(tmp_path / "gateway") as started:
        yield started


def go(gateway: Gateway, how: str) -> None:
    assert gateway.sidecar
    match how:
        case "killed":
            gateway.kill_sidecar()
        case "stopped":
            gateway.sidecar.send_signal(signal.SIGSTOP)
        case "socket gone":
            os.unlink(gateway.listen)  # noqa: PTH108


def come_back(gateway: Gateway, how: str) -> None:
    assert gateway.sidecar
    if how == "stopped":
        gateway.sidecar.send_signal(signal.SIGCONT)
        return
    if how == "socket gone":
        gateway.kill_sidecar()
    gateway.start_sidecar()


def stages(node: LocalNode) -> list[Stage]:
    """Oldest first."""
    return [copy.stage for copy in sorted(node.keeper.copies(), key=lambda copy: copy.born)]


def all_serve(made: Machine, node: LocalNode) -> bool:
    talk = around(made.folder).drivers.talk
    return all(talk.ask(copy.listens_at, INFER).ok for copy in node.keeper.copies())


@pytest.mark.parametrize("how", ["killed", "stopped", *(["socket gone"] if SOAK else [])])
def test_case_8_while_the_gateway_is_away_an_unfinished_hand_over_keeps_both_copies(
    one: Machine, gateway: Gateway, how: str
) -> None:
    with running(one, routes=gateway.routes()) as node:
        node.offer(assigned(1, served("search-1", sm=30)))
        until(lambda: ready(node, "search-1"), "it is ready")
        with steady_load(gateway.port, "/shop/search/v1/models/resnet:infer", rate_per_second=20, method="POST",
                         body="{}") as load:  # fmt: skip
            go(gateway, how)
            node.offer(assigned(2, served("search-1", sm=50)))
            until(lambda: stages(node) == [Stage.READY, Stage.ROUTING], "its route is not acknowledged")
            stays(lambda: stages(node) == [Stage.READY, Stage.ROUTING] and all_serve(one, node))
            come_back(gateway, how)
            until(lambda: ready(node, "search-1") and copy_of(node, "search-1").wanted.sm_percent == 50, "it is done")
            assert load.stop().failed == ()
    assert len(one.copies()) == 1


def test_case_8_no_draining_copy_is_ended_while_the_gateway_is_away(one: Machine, gateway: Gateway) -> None:
    with running(one, routes=gateway.routes()) as node:
        slow = {"model": "resnet", "latency": SLOW}
        node.offer(assigned(1, msgspec.structs.replace(served("search-1", sm=30), args=slow)))
        until(lambda: ready(node, "search-1"), "it is ready")
        with steady_load(gateway.port, "/shop/search/v1/models/resnet:infer", rate_per_second=4, method="POST",
                         body="{}") as load:  # fmt: skip
            node.offer(assigned(2, msgspec.structs.replace(served("search-1", sm=50), args=slow)))
            until(lambda: stages(node) == [Stage.DRAINING, Stage.READY], "the old one drains")
            gateway.kill_sidecar()
            drains = stages(node) == [Stage.DRAINING, Stage.READY]
            if drains:
                stays(lambda: stages(node) == [Stage.DRAINING, Stage.READY] and all_serve(one, node))
            gateway.start_sidecar()
            until(lambda: ready(node, "search-1"), "it is done")
            assert load.stop().failed == ()
    assert drains, "the gateway had said already that it is drained"


def test_case_8_while_the_gateway_hangs_what_dies_is_started_again(one: Machine, gateway: Gateway) -> None:
    with running(one, routes=gateway.routes()) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
        assert first.running is not None
        go(gateway, "stopped")
        kill(first.running.pid)
        until(lambda: stages(node) == [Stage.ENDING, Stage.ROUTING], "another is up, and the gateway knows nothing yet")
        assert node.keeper.gateway_away
        come_back(gateway, "stopped")
        until(lambda: ready(node, "search-1"), "it serves")


def test_case_8_a_hand_over_under_way_keeps_both_copies_while_the_control_plane_is_away(one: Machine) -> None:
    with running(one) as node:
        node.offer(assigned(1, served("search-1", sm=30)))
        until(lambda: ready(node, "search-1"), "it is ready")
        node.offer(assigned(2, served("search-1", sm=50)))
        until(lambda: len(node.keeper.copies()) == 2, "its successor is begun")
        node.set_contact(False)
        until(lambda: stages(node)[1] in (Stage.READY, Stage.STARTING), "it goes no further")
        stays(lambda: stages(node)[0] is Stage.READY and len(node.keeper.copies()) == 2)
        node.set_contact(True)
        until(lambda: ready(node, "search-1") and copy_of(node, "search-1").wanted.sm_percent == 50, "it is done")


@pytest.mark.parametrize(
    ("died", "copies"),
    [((1, "after"), 1), *([((1, "before"), 1), ((2, "before"), 2), ((2, "after"), 2)] if SOAK else [])],
)
def test_case_8_an_agent_that_starts_while_the_control_plane_is_away_starts_nothing_and_ends_nothing(
    api: RunningServer, tmp_path: Path, died: tuple[int, str], copies: int
) -> None:
    """It died when the new copy was decided, and when that ran; what it finds then is what stays."""
    with site(api, tmp_path) as made:
        made.agent.contact_seconds = 1.0
        made.agent.order(*died)
        made.assign(search=50, images=30)
        until(made.agent.is_dead, "it dies in the hand-over")
        api.kill()
        made.start_agent()
        until(lambda: bool(made.status()), "it answers")
        until(lambda: ready_copies(made, "search") == copies, "what runs is ready")
        stays(lambda: len(of_search(made)) == copies and ready_copies(made, "search") == copies, scaled(10, 1))
        api.restart()
        made.reach()
    assert made.seen.failed == []
    assert made.seen.broken == []


def of_search(made: Site) -> list[str]:
    runtime = ProcessRuntime(made.agent.folder / "copies")
    return [running.copy for running in runtime.find() if instance_of(running.copy) == "search-1"]


def ready_copies(made: Site, service: str) -> int:
    """As many as run, are ready and have their route."""
    told = made.status().get("copies", [])
    mine = [one for one in told if one["instance"] == f"{service}-1"]
    return sum(one["stage"] == "ready" and one.get("routed", False) for one in mine)


def stays(holds: Callable[[], bool], seconds: float = 0.5) -> None:
    """It holds, and goes on holding."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert holds()
        time.sleep(0.05)
