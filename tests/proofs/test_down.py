"""Whatever keeps a copy from running after its rollout: it runs elsewhere, or its service is named as the cause."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from app.http.metrics import REGISTRY
from app.manifests.offline import DeclaredFiles
from simulation.world import read_documents
from tests.proofs.campaign.down import DOWN_FAULTS, MOST_DOWN_SECONDS
from tests.proofs.campaign.faults import CampaignTools
from tests.proofs.campaign.invariants import Campaign
from tests.proofs.campaign.world import campaign_fleet
from tests.simulation.worlds import gpu_type, model, node, policy, profile, service
from tests.support.soak import SOAK

pytestmark = pytest.mark.slow

SERVICES = "abcd"
START_SECONDS = 5
ALARMS = text(  # each service also says that its callers are not served, which is another matter
    "SELECT times, message FROM event WHERE severity = 'alarm' AND reason <> 'burn_fast' ORDER BY at, id"
)
TOLD = text("SELECT reason FROM event WHERE kind = 'Service' AND name = :name")
BACK_SECONDS = 120  # in which an agent tries each copy again
SUSPECT_WITHIN_SECONDS = 6 * MOST_DOWN_SECONDS  # it falls in three places, and rests between them


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The product logs every fault."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def world() -> DeclaredFiles:
    found = [gpu_type(), policy(), *(node(f"node-{number}", 1) for number in range(4))]
    for name in SERVICES:
        found += [model(name), profile(name, startSeconds=START_SECONDS), service(name, 60.0)]
    return read_documents(found)


@pytest.fixture
def campaign(database_url: str, tmp_path: Path) -> Iterator[Campaign]:
    """A fleet of real agents in virtual time, whose plan is done."""
    with campaign_fleet(database_url, tmp_path / "fleet", 1, world()) as (simulation, gateway, disk):
        tools = CampaignTools(database_url, tmp_path / "fleet", gateway, disk, "shop", ())
        campaign = Campaign(simulation, 1, DOWN_FAULTS, tools=tools)
        campaign.advance(30)
        assert down(campaign) == set()
        yield campaign


def down(campaign: Campaign) -> set[str]:
    """Returns the services without a copy that is routed and answers."""
    answering = {
        route.service
        for each in campaign.nodes
        for route in campaign.tools.gateway.routes.get(each.name, ())
        if not route.drained and each.answers(route.copy)
    }
    return {f"shop/{name}" for name in SERVICES} - answering


def told(campaign: Campaign, service_name: str) -> set[str]:
    name = service_name.split("/")[1]
    return set(campaign.simulation.database.read(lambda c: list(c.execute(TOLD, {"name": name}).scalars())))


@pytest.mark.parametrize(
    "kind", [each for each in DOWN_FAULTS if each != "model_file_deleted"] if SOAK else ["crash_loop"]
)
def test_what_a_place_cannot_run_any_more_runs_again_in_time(campaign: Campaign, kind: str) -> None:
    campaign.strike(kind)
    campaign.advance(3)
    hit = down(campaign)
    assert hit
    seconds = 0.0
    while down(campaign) and seconds < MOST_DOWN_SECONDS + 2 * START_SECONDS:
        campaign.advance(1)
        seconds += 1
    assert down(campaign) == set(), seconds
    assert campaign.violations == []


def test_a_service_whose_file_is_gone_stays_and_is_named_with_what_its_copies_said(campaign: Campaign) -> None:
    campaign.strike("model_file_deleted")
    campaign.advance(3)
    (hit,) = down(campaign)
    seconds = 0.0
    while "service_suspect" not in told(campaign, hit) and seconds < SUSPECT_WITHIN_SECONDS:
        campaign.advance(5)
        seconds += 5
    assert {"instance_down", "service_suspect"} <= told(campaign, hit)
    tenant, name = hit.split("/")
    assert REGISTRY.get_sample_value("gpuwright_service_routed_copies", {"tenant": tenant, "service": name}) == 0
    campaign.mend()
    while down(campaign) and seconds < 2 * SUSPECT_WITHIN_SECONDS:
        campaign.advance(5)
        seconds += 5
    assert down(campaign) == set()
    assert campaign.violations == []


def test_a_model_store_that_is_away_for_five_minutes_moves_nothing_and_is_one_alarm(campaign: Campaign) -> None:
    services = {f"shop/{name}" for name in SERVICES}
    places = list_places(campaign)
    assert list_alarms(campaign) == []
    bring_back = campaign.delete_files(services)
    for _ in range(60):
        campaign.advance(5)
        assert list_places(campaign) == places
    assert down(campaign) == services
    campaign.strike("copy_hangs")
    assert campaign.pairs == set(), "it finds nothing to strike"
    bring_back()
    seconds = 0
    while down(campaign) and seconds < BACK_SECONDS:
        campaign.advance(5)
        seconds += 5
    assert down(campaign) == set()
    assert list_places(campaign) == places, "nothing has moved"
    ((times, message),) = list_alarms(campaign)
    assert times == 1
    assert message.startswith(f"{len(places)} of {len(places)} copies of shop went down within a minute"), message
    assert "all of them share template gpuwright-serve, reason exited" in message
    assert campaign.violations == []


def list_places(campaign: Campaign) -> set[tuple[str, str, int]]:
    """Returns the instances that nodes are assigned, each with its node and its GPU."""
    assigned = campaign.simulation.planner.store.view().assigned
    return {(line.id, name, line.gpu) for name, wanted in assigned.items() for line in wanted.instances}


def list_alarms(campaign: Campaign) -> list[tuple[int, str]]:
    """Returns how often each alarm came, and what it says."""
    rows = campaign.simulation.database.read(lambda connection: list(connection.execute(ALARMS)))
    return [(row.times, row.message) for row in rows]
