"""A node whose GPUs, state folder, name or boot changed serves again within two cycles, or says what is wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.manifests.model import Key, Kind
from app.store.world import events, objects
from app.store.world.events import EventFilter
from simulation.world import read_documents
from tests.proofs.campaign.boards import boards_of, other_board
from tests.proofs.campaign.faults import CampaignTools
from tests.proofs.campaign.identity import IDENTITY_FAULTS
from tests.proofs.campaign.invariants import Campaign
from tests.proofs.campaign.world import campaign_fleet
from tests.simulation.test_chaos import settled
from tests.simulation.worlds import document, gpu_type, model, node, policy, profile

pytestmark = pytest.mark.slow

CYCLES = 2
UNCHANGED = ("bus_renumbered", "boot_changed", "state_folder_lost")
REPLACED = {"uuids_changed": 3, "boards_permuted": 3, "board_replaced": 1, "name_reused": 3} | dict.fromkeys(
    UNCHANGED, 0
)
SERVICES = ("a", "b", "c")  # each takes a whole GPU


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@contextmanager
def one_node(database_url: str, folder: Path) -> Iterator[Campaign]:
    """Three GPUs of one node, all of which the services need."""
    documents = [gpu_type(), policy(mode="auto"), node("node-0", gpus=3)]
    for name in SERVICES:
        spec = {"model": name, "slo": {"latencyMs": 120, "percentile": 98}, "ratePerSecond": 250.0}
        documents += [model(name), profile(name, startSeconds=10), document("Service", name, spec, "shop")]
    with campaign_fleet(database_url, folder, 1, read_documents(documents)) as (simulation, gateway, disk):
        tools = CampaignTools(database_url, folder, gateway, disk, "shop", ())
        campaign = Campaign(simulation, 1, IDENTITY_FAULTS, 1.0, tools=tools)
        campaign.advance(90)
        assert settled(campaign) == []
        yield campaign


@pytest.mark.parametrize("fault", [fault for fault in IDENTITY_FAULTS if fault != "board_gone"])
def test_a_node_serves_again_within_two_cycles(database_url: str, tmp_path: Path, fault: str) -> None:
    with one_node(database_url, tmp_path / "fleet") as campaign:
        if fault == "snapshot_restored":
            campaign.strike("uuids_changed")
            assert unsettled(campaign) == []
        campaign.strike(fault)
        assert unsettled(campaign) == []
        (changed,) = campaign.nodes
        assert {copy.gpu for copy in changed.alive()} == set(changed.uuids)
        campaign.advance(90)  # for which I9 is looked at
        assert campaign.violations == []
        assert condition(campaign) == ("False", "AsDeclared", "the GPUs are as declared")
        assert found_events(campaign, "gpu_failed") == []
        if fault in REPLACED:
            assert len(found_events(campaign, "gpu_replaced")) == REPLACED[fault]


def test_a_gpu_that_is_gone_leaves_a_gap_and_the_others_serve(database_url: str, tmp_path: Path) -> None:
    with one_node(database_url, tmp_path / "fleet") as campaign:
        (node_,) = campaign.nodes
        gone, *others = boards_of(node_)
        campaign.restart(node_, [gone, *others], gone=[0])
        campaign.advance(CYCLES * campaign.simulation.planner.cycle_seconds)
        assert {copy.gpu for copy in node_.alive()} == {board.uuid for board in others}
        assert all(campaign.simulation.fleet.ready(f"shop/{name}") for name in SERVICES), "on the GPUs that are left"
        status, reason, message = condition(campaign)
        assert (status, reason) == ("True", "Missing")
        assert message.startswith(
            f"3 GPUs are declared, but 2 were found; GPU 0 ({gone.uuid} at {gone.pci}) is missing; the"
        )
        assert "GPU 0 is failed or fenced" in found_events(campaign, "gpu_failed")
        node_.give_back(0)
        campaign.advance(120)
        assert settled(campaign) == []
        assert condition(campaign)[0] == "False"
        assert campaign.violations == []


def test_what_cannot_be_told_is_said_and_joining_again_mends_it(database_url: str, tmp_path: Path) -> None:
    with one_node(database_url, tmp_path / "fleet") as campaign:
        (node_,) = campaign.nodes
        first, *rest = boards_of(node_)
        others = [
            replace(other_board(board, str(bus)), pci=f"00000000:{bus}:00.0") for bus, board in enumerate(rest, 40)
        ]
        campaign.restart(node_, [first, *others])
        campaign.advance(CYCLES * campaign.simulation.planner.cycle_seconds)
        assert {copy.gpu for copy in node_.alive()} == {first.uuid}
        status, reason, message = condition(campaign)
        assert (status, reason) == ("True", "Missing")
        assert "which is which cannot be told, so the new ones are not used: join the node again" in message
        campaign.join(node_)
        node_.folder.forget_indexes()
        node_.agent.forget_indexes()
        assert unsettled(campaign) == []
        assert {copy.gpu for copy in node_.alive()} == set(node_.uuids)


def unsettled(campaign: Campaign) -> list[str]:
    """Lets up to two cycles pass; returns what is not as it should be by then."""
    ends = campaign.simulation.clock.seconds + CYCLES * campaign.simulation.planner.cycle_seconds
    campaign.advance(10)
    while settled(campaign) and campaign.simulation.clock.seconds < ends:
        campaign.advance(5)
    return settled(campaign)


def condition(campaign: Campaign) -> tuple[str, str, str]:
    """The node's condition InventoryMismatch: its status, its reason and its message."""
    stored = campaign.simulation.database.read(lambda c: objects.get(c, Key(Kind.NODE, "", "node-0")))
    assert stored is not None
    conditions: Any = stored.status["conditions"]
    (found,) = [found for found in conditions if found["type"] == "InventoryMismatch"]
    return found["status"], found["reason"], found["message"]


def found_events(campaign: Campaign, reason: str) -> list[str]:
    """The messages of events with this reason."""
    found = campaign.simulation.database.read(lambda c: events.recent(c, EventFilter(reasons=[reason])))
    return [event.message for event in found]
