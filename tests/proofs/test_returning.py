"""What was away returns: a database that is restarted under everybody, and an agent that remembers an older plan."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.embedded import EmbeddedPostgres
from app.store.database import schema
from tests.proofs.town import RATE, SERVICE, PlannerProcess, Town, agent_words, town, world
from tests.support.load import steady_load
from tests.support.patience import until

pytestmark = pytest.mark.slow

RESTING_SECONDS = 15.0  # three cycles of the town
DIRECT = {"GPUWRIGHT_DATABASE_DIRECT": "1"}


@dataclass
class Site:
    """A town, and the Postgres that all of it rests on."""

    town: Town
    folder: Path
    server: EmbeddedPostgres
    later: list[EmbeddedPostgres] = field(default_factory=list)

    def database_goes(self) -> None:
        self.server.stop()

    def database_comes(self) -> None:
        self.server = EmbeddedPostgres(self.server.data_dir)
        self.later.append(self.server)
        self.server.start()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("returning")
    folder.chmod(0o755)
    with EmbeddedPostgres(folder / "postgres") as server:
        schema.migrate(server.url)
        with town(server.url, server.url, folder, 2, DIRECT) as made:
            here = Site(made, folder, server)
            yield here
        for one in here.later:
            one.stop()


def asked(made: Town, rate: float) -> None:
    """Let the service be asked so much from now on."""
    service: dict[str, Any] = next(one for one in world() if one["kind"] == "Service")
    reply = made.servers[0].request(
        "POST", "/api/v1/apply", [service | {"spec": service["spec"] | {"ratePerSecond": rate}}]
    )
    assert reply.status == 200, reply.text


def newest(made: Town) -> int:
    return int(made.rows("SELECT coalesce(max(generation), 0) FROM plan")[0][0])


def said(planner: PlannerProcess, event: str) -> bool:
    return any(
        json.loads(line).get("event") == event for line in planner.log_path.read_text().splitlines() if "{" in line
    )


def processes(made: Town) -> list[int]:
    """Of all that must not end because of it."""
    found = [server.process for server in made.servers] + [planner.process for planner in made.planners]
    found += [agent.process for agent in made.agents if agent.process]
    assert all(one.poll() is None for one in found)
    return [one.pid for one in found]


def pids(made: Town) -> dict[str, int]:
    """Which process each copy is."""
    return {running.copy: running.pid for agent in made.agents for running in agent.runtime.find()}


def test_case_4_a_restart_of_postgres_is_503_to_callers_and_nothing_to_requests_and_planning_continues(
    site: Site,
) -> None:
    made = site.town
    everybody, copies, before = processes(made), pids(made), newest(made)
    path = f"/shop/{SERVICE}/v1/models/stub:infer"
    with steady_load(made.gateway.port, path, rate_per_second=RATE / 2, method="POST", body="{}") as load:
        site.database_goes()
        for server in made.servers:
            for reply in (server.request("GET", "/api/v1/tenants"), server.request("POST", "/api/v1/apply", world())):
                assert reply.status == 503
                assert int(reply.headers["retry-after"]) > 0
        newcomer = PlannerProcess(site.server.url, site.folder, "newcomer", DIRECT)
        try:
            for planner in (*made.planners, newcomer):
                until(lambda planner=planner: said(planner, "database_away"), "it says that the database is away")  # type: ignore[misc]
            assert pids(made) == copies, "what serves is left alone"
            site.database_comes()
            until(lambda: all(server.request("GET", "/readyz").status == 200 for server in made.servers))
            until(lambda: said(newcomer, "database_back"), "who started without a database goes on with it")
            assert newcomer.process.poll() is None
        finally:
            newcomer.close()
        asked(made, 3 * RATE)
        until(lambda: newest(made) > before and made.served(), "it is planned again, unaided")
        assert load.stop().failed == ()
    assert processes(made) == everybody
    assert made.twice() == []
    assert made.out_of_order() == []


def test_case_9_an_agent_that_returns_with_an_older_plan_keeps_what_is_healthy_and_nothing_starts_twice(
    site: Site,
) -> None:
    made = site.town
    agent = next(one for one in made.agents if one.copies())
    old = {file: (agent.folder / file).read_bytes() for file in ("memory.json",)}
    before = newest(made)
    asked(made, RATE / 2)
    asked(made, 4 * RATE)
    until(lambda: newest(made) > before and made.served(), "another plan is rolled out")
    until(lambda: _rests(made), "the load is answered, by as many plans as it takes")
    agent.end(signal.SIGKILL)
    copies, generation = pids(made), newest(made)
    for file, content in old.items():
        (agent.folder / file).write_bytes(content)
    heard = _heard(made, agent.node)
    agent.start(*agent_words(made.gateway))
    until(lambda: _heard(made, agent.node) > heard, "it reports")
    assert pids(made) == copies, "it has touched nothing before"
    first = _heard(made, agent.node)
    until(lambda: _heard(made, agent.node) > first + 1, "and reports on")
    until(made.served, "the plan stands")
    assert pids(made) == copies, "what was healthy is what it was"
    assert newest(made) == generation, "nothing was planned because of it"
    assert made.twice() == []


def _rests(made: Town) -> bool:
    """Nothing was planned for three cycles."""
    generation = newest(made)
    time.sleep(RESTING_SECONDS)
    return newest(made) == generation and made.served()


def _heard(made: Town, node: str) -> int:
    """Its newest report."""
    rows = made.rows(f"SELECT ordinal FROM node_state WHERE node = '{node}'")
    return int(rows[0][0]) if rows else 0
