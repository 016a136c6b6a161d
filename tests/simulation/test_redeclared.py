"""A node that is deleted and declared again resumes work, simulated or real."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.node.state_folder import StateFolder
from agents.talk.link import Link
from app.manifests.model import Key, Kind
from app.world.declare import delete
from simulation.real.part import RealPart, RealSetup
from simulation.run import open_simulation
from simulation.world import ACTOR, put, read_store, truth_of
from tests.simulation.worlds import CALM_TICK_SECONDS, small
from tests.support.server import RunningServer
from tests.support.world import gpu_type, node

pytestmark = pytest.mark.slow

SPEC = {"gpuType": "v100-16gb", "gpus": 2, "cpuCores": 48, "memoryGib": 256}


def test_a_simulated_node_that_is_declared_again_serves_again(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=2)) as simulation:
        simulation.advance(70, CALM_TICK_SECONDS)
        assert simulation.fleet.ready("shop/a")
        database = simulation.database
        key = Key(Kind.NODE, "", "node-0")
        database.write(lambda connection: delete(connection, ACTOR, key, force=True))
        simulation.fleet.follow(truth_of(database.read(read_store)))
        simulation.advance(40, CALM_TICK_SECONDS)
        assert not simulation.fleet.ready("shop/a")
        put(database, small(gpus=2))
        simulation.fleet.follow(truth_of(database.read(read_store)))
        simulation.advance(90, CALM_TICK_SECONDS)
        assert all(simulation.fleet.ready(name) for name in simulation.fleet.declared)


def real_part(api: RunningServer, folder: Path) -> RealPart:
    """The real part of `up`, of which nothing runs yet."""
    token_file = folder / "token"
    token_file.write_text(api.admin_token)
    return RealPart(RealSetup(api.url, str(token_file), str(folder), 0, "node-1", SPEC, [], []), folder)


def test_each_start_revokes_the_gateways_token_of_the_one_before(api: RunningServer, tmp_path: Path) -> None:
    real = real_part(api, tmp_path)
    first, second = (real.renew_token().read_text() for _ in range(2))
    live = {token["id"]: token["revokedAt"] is None for token in api.request("GET", "/api/v1/tokens").json["items"]}
    assert (live[first.split("_")[1]], live[second.split("_")[1]]) == (False, True)


def test_the_real_node_of_up_joins_again_when_it_is_declared_again(api: RunningServer, tmp_path: Path) -> None:
    assert api.request("POST", "/api/v1/apply", [gpu_type(), node("node-1", gpus=2)]).status == 200
    real = real_part(api, tmp_path)
    real.join()
    first = StateFolder(tmp_path / "node-1").credential()
    joined = real.joined
    real.rejoin()
    assert api.request("DELETE", "/api/v1/nodes/node-1").status == 200
    real.rejoin()
    assert real.joined == joined
    assert api.request("PUT", "/api/v1/nodes/node-1", node("node-1", gpus=2)).status == 201
    real.rejoin()
    assert real.joined != joined
    second = StateFolder(tmp_path / "node-1").credential()
    assert first and second and first.token != second.token
    link = Link(api.url, second.token)
    assert link.request("GET", "/api/v1/nodes/node-1/assignment?after=0&waitSeconds=0").status == 204
    link.close()
