"""Contact with the control plane: lost after a minute of silence, whichever way gateways learn of copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agents.control.agent import Agent
from agents.control.assignments import begin_incarnation
from agents.control.contact import CONTACT_SECONDS
from agents.control.join import join
from agents.gateway.followers import FOLLOWED, SETTLED_SECONDS, Followers
from agents.host import clocks
from agents.node.node import LocalNode
from agents.node.state_folder import StateFolder
from agents.seams.routes import Routes
from agents.talk.link import Link
from tests.proofs.test_away import stays
from tests.support.haproxy import running_gateway
from tests.support.nodes import assigned, copy_of, kill, machine, ready, running, served
from tests.support.patience import until
from tests.support.server import RunningServer
from tests.support.world import gpu_type

pytestmark = pytest.mark.slow

SPEC = {"gpuType": "v100-16gb", "gpus": 1, "cpuCores": 48, "memoryGib": 256}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Site:
    """A node with real copies and an agent whose requests the test sends, under the test's clock."""

    def __init__(self, agent: Agent, node: LocalNode, link: Link, clock: Clock) -> None:
        self.agent = agent
        self.node = node
        self.link = link
        self.clock = clock

    def report(self, after: float = 0.0) -> bool:
        """Sends a report; returns whether it was answered."""
        self.clock.now += after
        return self.agent.attempt(self.agent.report_once, self.link) is None

    def serves(self, *names: str) -> bool:
        """Returns whether these run and are ready; in the meantime reports are stored."""
        if self.report():  # the server may ask it to slow down
            self.clock.now += SETTLED_SECONDS
        return ready(self.node, *names)

    def has(self, name: str) -> bool:
        return any(copy.instance == name for copy in self.node.keeper.copies())


@pytest.fixture(params=["sidecar", FOLLOWED])
def site(request: pytest.FixtureRequest, api: RunningServer, tmp_path: Path) -> Iterator[Site]:
    assert api.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
    token = api.request("POST", "/api/v1/jointokens", {"node": "node-1"}).json["token"]
    folder, clock = StateFolder(tmp_path / "agent"), Clock()
    credential = join(folder, api.url, token, "node-1", SPEC)
    with ExitStack() as around:
        made = around.enter_context(machine(tmp_path / "node", ["v100-16gb"]))
        routes: Routes = Followers(clock)
        if request.param == "sidecar":
            routes = around.enter_context(running_gateway(tmp_path / "gateway")).routes()
        node = around.enter_context(running(made, routes=routes, heard=False))
        agent = Agent(folder, credential, node, begin_incarnation(folder, clocks.date()), clock=clock)
        yield Site(agent, node, Link(credential.server, credential.token), clock)
    if api.process.poll() is not None:
        api.restart()


def test_case_8_a_minute_without_an_answer_freezes_the_node_and_ends_nothing(site: Site, api: RunningServer) -> None:
    site.node.offer(assigned(1, served("search-1", memory=1.0)))
    until(lambda: site.serves("search-1"), "it serves")
    until(site.report, "the control plane answers for the last time")
    api.kill()
    assert not site.report(after=CONTACT_SECONDS - 1)
    site.node.offer(assigned(2, served("search-1", memory=1.0), served("images-1", memory=1.0)))
    until(lambda: site.has("images-1"), "for a minute the assignment counts")
    assert not site.report(after=2)
    site.node.offer(assigned(3, served("search-1", sm=50, memory=1.0), served("audio-1", memory=1.0)))
    first = copy_of(site.node, "search-1")
    # Neither replaced nor ended; not wanted any more, but not ended; and nothing new is started.
    stays(lambda: copy_of(site.node, "search-1") == first and site.has("images-1") and not site.has("audio-1"))
    api.restart()
    until(lambda: site.serves("search-1", "audio-1"), "the newest assignment is carried out")
    assert copy_of(site.node, "search-1").wanted.sm_percent == 50


def test_case_8_a_copy_that_dies_after_contact_is_lost_is_started_again_at_its_address(
    site: Site, api: RunningServer
) -> None:
    site.node.offer(assigned(1, served("search-1")))
    until(lambda: site.serves("search-1"), "it serves")
    api.kill()
    assert not site.report(after=CONTACT_SECONDS + 1)
    first = copy_of(site.node, "search-1")
    assert first.running is not None
    kill(first.running.pid)

    def is_back() -> bool:
        copies = [copy for copy in site.node.keeper.copies() if copy.id != first.id]
        return bool(copies) and copies[0].stage in ("routing", "ready")

    until(is_back, "another copy runs")
    (second,) = [copy for copy in site.node.keeper.copies() if copy.id != first.id]
    assert second.port == first.port
    api.restart()
    until(lambda: site.serves("search-1"), "gateways know it")
