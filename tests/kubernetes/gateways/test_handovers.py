"""No request fails while copies are replaced by others with other shares: through a real Envoy, by weights."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from math import sqrt

import pytest

from agents.contract.gateways import EndpointCopy
from tests.kubernetes.gateways.envoy_gateway import PORT
from tests.kubernetes.gateways.site import COPIES_HOST, RoutedSite
from tests.support.haproxy import running_copies
from tests.support.load import Sample, steady_load
from tests.support.patience import until
from tests.support.soak import scaled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SERVICES = ("alpha", "beta", "gamma")
RATES = (40.0, 60.0, 90.0, 120.0)  # of which copies have one
ROUNDS = scaled(67, 2)  # of three changes each
SETTLE = "--settle-seconds=0.5"


class Changing:
    """Three services with two copies each, whose copies are replaced one by one, as agents do it."""

    def __init__(self, site: RoutedSite, seed: int) -> None:
        self.site, self.chance = site, random.Random(seed)
        self._fresh: Iterator[int] = count()
        self.routed = {name: [self._start(), self._start()] for name in SERVICES}
        self.changes = 0
        site.put(**self.routed)

    def begin(self) -> int:
        """Starts a copy of each service in place of another, which still serves; returns the version."""
        self.leaving = {name: self.chance.choice(copies) for name, copies in self.routed.items()}
        for copies in self.routed.values():
            copies.append(self._start())
        return self.site.say(**self.routed)

    def finish(self) -> None:
        """Drains those that leave, and ends them once the gateway says that it has it."""
        self.site.put(**{name: self._drain(name) for name in SERVICES})
        for name, copy in self.leaving.items():
            self.site.copies.end(int(copy.id[1:]))
            self.routed[name].remove(copy)
            self.changes += 1
        self.site.say(**self.routed)

    def change(self) -> None:
        self.site.await_version(self.begin())
        self.finish()

    def _start(self) -> EndpointCopy:
        return self.site.copy(next(self._fresh), self.chance.choice(RATES))

    def _drain(self, name: str) -> list[EndpointCopy]:
        gone = self.leaving[name]
        return [self.site.copy(int(each.id[1:]), each.weight, each == gone) for each in self.routed[name]]


def test_no_request_fails_while_shares_change_and_the_api_server_and_the_gateway_are_killed(site: RoutedSite) -> None:
    process = site.start(SETTLE)
    samples: list[Sample] = []
    with ExitStack() as stack:
        site.copies = stack.enter_context(running_copies(6 + 3 * (ROUNDS + 2), host=COPIES_HOST))
        changing = Changing(site, seed=1)
        loads = [
            stack.enter_context(steady_load(PORT, f"/shop/{name}/x", rate_per_second=30, connections=4))
            for name in SERVICES
        ]
        for number in range(ROUNDS):
            if number == ROUNDS // 2:
                kill_the_gateway(site, changing, process)
                lose_the_api_server(site, changing)
            changing.change()
        for load in loads:
            samples += load.stop().samples
    assert [sample for sample in samples if sample.failed] == []
    assert changing.changes == 3 * (ROUNDS + 2)


def kill_the_gateway(site: RoutedSite, changing: Changing, process: subprocess.Popen[bytes]) -> None:
    """Kills it when new copies have come; another one goes on where it stopped, once the lease is over."""
    version = changing.begin()
    until(lambda: len(site.list_objects("endpointslices")) > 6, "it has begun")
    process.kill()
    process.wait()
    site.start(SETTLE)
    site.await_version(version)
    changing.finish()


def lose_the_api_server(site: RoutedSite, changing: Changing) -> None:
    """Kills the API server: what is there stays, and nothing is called in force that the Gateway cannot know."""
    said = site.log.read_text().count("routes stay as they are")
    with site.server.away():
        until(lambda: site.log.read_text().count("routes stay as they are") > said, "it notices")
        version = changing.begin()
        before = len(site.plane.counts)
        until(lambda: len(site.plane.counts) > before + 2, "it still reports")
        assert site.plane.newest.endpoints < version
    site.await_version(version)
    changing.finish()


def test_copies_get_requests_by_their_planned_rates(site: RoutedSite) -> None:
    planned: Mapping[int, float] = {0: 300.0, 1: 100.0, 2: 100.0, 3: 45.5, 4: 4.5}
    site.start(SETTLE)
    site.put(search=[site.copy(index, rate) for index, rate in planned.items()])
    # The API server was away a moment ago: a Gateway that has not read of the new namespace yet refuses its routes.
    until(lambda: site.get()[0] == 200, lambda: f"the Gateway takes the route: {site.log.read_text()[-2000:]}")
    before = {index: site.copies.requests(index) for index in planned}
    with steady_load(PORT, "/shop/search/x", rate_per_second=300) as load:
        load.await_answers(scaled(20_000, 3000))
        outcome = load.stop()
    counted = {index: site.copies.requests(index) - before[index] for index in planned}
    assert outcome.failed == ()
    assert sum(counted.values()) == len(outcome.samples)
    for index, rate in planned.items():
        share = rate / sum(planned.values())
        expected = share * len(outcome.samples)
        # Five standard deviations of independent choices; among copies of one rate Envoy chooses the less busy.
        assert abs(counted[index] - expected) < 5 * sqrt(expected * (1 - share)) + 1, (counted, expected)
