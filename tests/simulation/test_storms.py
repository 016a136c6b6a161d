"""Storms take spot nodes of one place at once, and its pool rents none: what is declared to be kept is kept."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from app.manifests.offline import DeclaredFiles
from cli.views.storms import show_storms
from simulation.run import Simulation, open_simulation
from simulation.storms import StormOrder, StormRounds, list_pools, name_place
from simulation.world import read_documents
from tests.simulation.test_renting import TICK_SECONDS
from tests.simulation.worlds import Document, document, gpu_type, model, node, policy, profile, service
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

STORMS = scaled(50, 3)
EVERY_SECONDS = 900.0
SLOS = {"shop/kept": 0.98, "shop/bare": 0.98}
SURVIVING = {"surviveNodes": 1, "maxSpotShare": 0.5}


def pool(name: str, **spec: Any) -> Document:
    usual = {
        "gpuType": "v100-16gb", "gpusPerNode": 1, "cpuCores": 24, "memoryGib": 128, "max": 3, "startSeconds": 60,
        "minimumMinutes": 10, "hook": "cloud",
    }  # fmt: skip
    return document("Pool", name, usual | spec)


def world(*more: Document) -> DeclaredFiles:
    """Two spot pools in two regions, an on-demand pool that is dearer, and one GPU of our own."""
    prices = {"east": 0.3, "west": 0.4}
    spot = [{"region": region, "purchase": "spot", "perHour": price} for region, price in prices.items()]
    kind = gpu_type()
    return read_documents(
        [
            kind | {"spec": kind["spec"] | {"prices": spot}},
            policy(),
            node("own", gpus=1) | {"spec": node("own", gpus=1)["spec"] | {"purchase": "owned"}},
            pool("east", region="east", purchase="spot"),
            pool("west", region="west", purchase="spot"),
            *more,
            pool("firm"),
            *(found for name in ("kept", "bare") for found in (model(name), profile(name))),
            service("kept", 300.0, minInstances=2, availability=SURVIVING),
            service("bare", 300.0),
        ]
    )


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda connection: list(connection.execute(text(sql))))


def test_a_service_that_declares_what_it_survives_keeps_its_promise_through_every_storm(database_url: str) -> None:
    with open_simulation(database_url, world()) as simulation:
        simulation.fleet.patient = True
        storms = StormRounds(simulation, StormOrder(EVERY_SECONDS, 1 / 3), seed=5)
        for _ in simulation.seconds((STORMS + 1) * EVERY_SECONDS - 1, TICK_SECONDS):
            storms.tick()
        figures = storms.figures(SLOS)
        assert figures["count"] == STORMS
        assert figures["taken"] > 0, "others were given back before their machines went"
        assert len(figures["takenByStorm"]) == STORMS
        assert sum(figures["takenByStorm"]) == figures["taken"]
        assert figures["services"]["shop/kept"]["kept"] == STORMS, figures
        assert rows(simulation, "SELECT name FROM event WHERE message LIKE '%its cloud has taken it back'")
        joined = {node for (node,) in rows(simulation, "SELECT node FROM rented_node WHERE state = 'joined'")}
        up = {found.node for found in simulation.cloud.machines.values() if found.is_up}
        assert joined <= up, "what was taken no longer counts as rented"


def test_while_a_storm_lasts_its_pool_refuses_and_another_is_asked(database_url: str) -> None:
    with open_simulation(database_url, world()) as simulation:
        simulation.advance(600, TICK_SECONDS)
        east = [found.node for found in simulation.cloud.machines.values() if found.pool == "east" and found.is_up]
        assert east, "the cheapest pool is asked first"
        storms = StormRounds(simulation, StormOrder(600.0, 1.0), seed=1)
        place = name_place(simulation, east[0])
        assert list_pools(simulation, place) == {"east"}
        for _ in simulation.seconds(500, TICK_SECONDS):
            storms.tick()
        assert simulation.cloud.refusals
        refused = rows(simulation, "SELECT DISTINCT pool FROM rented_node WHERE state = 'refused'")
        assert refused == [("east",)]
        assert rows(simulation, "SELECT reason FROM event WHERE reason = 'rent_refused'")
        assert not {found.node for found in simulation.cloud.machines.values() if found.is_up} & set(east)
        others = {found.pool for found in simulation.cloud.machines.values() if found.paid_from > 600}
        assert others - {"east"}, "another pool gives what this one refuses"


def test_a_storm_strikes_every_spot_pool_of_its_gpu_type_and_region(database_url: str) -> None:
    """Of three pools in the east the other spot pool is short too, and the on-demand pool is not."""
    more = (pool("east-2", region="east", purchase="spot"), pool("east-firm", region="east"))
    with open_simulation(database_url, world(*more)) as simulation:
        simulation.advance(600, TICK_SECONDS)
        rented = [found.node for found in simulation.cloud.machines.values() if found.is_up and "east" in found.pool]
        places = {name_place(simulation, node) for node in rented}
        assert places == {"v100-16gb in east"}
        assert list_pools(simulation, "v100-16gb in east") == {"east", "east-2"}


def test_without_a_storm_nothing_is_claimed(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = world()
    with open_simulation(database_url, files) as simulation:
        figures = StormRounds(simulation, StormOrder(EVERY_SECONDS, 1 / 3), seed=5).figures(SLOS)
    assert figures["services"]["shop/kept"] == {"kept": 0, "worst": None}
    show_storms(figures, files)
    shown = capsys.readouterr().out
    assert "%" not in shown
    assert "0 of 0" not in shown
