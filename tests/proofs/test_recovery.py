"""The campaign gives a fleet the time that it needs to recover: a rest after a failed step does not count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.proofs.campaign.faults import CampaignTools
from tests.proofs.campaign.invariants import Campaign
from tests.proofs.campaign.running import WARM_UP_SECONDS, recover
from tests.proofs.campaign.world import campaign_fleet
from tests.simulation.test_chaos import settled

CYCLES = 2
HELD_UP_SECONDS = 80.0  # longer than those cycles; with the rest of a minute after a second failure it is soon enough
FAILED_TWICE = text(
    """
    UPDATE plan SET rollout = rollout || jsonb_build_object('failures', jsonb_build_array(
        jsonb_build_object('owner', 'shop/shop-2', 'place', NULL, 'at', CAST(:at AS float8) - 60),
        jsonb_build_object('owner', 'shop/shop-2', 'place', NULL, 'at', CAST(:at AS float8))))
    WHERE generation = (SELECT max(generation) FROM plan WHERE rollout ? 'pending')
    """
)


@dataclass
class HeldUp(Campaign):
    """A campaign in which a copy that was killed gets its route only after a while."""

    until: float = 0.0

    def hold_up(self, seconds: float) -> None:
        """Kills a copy on a node whose gateway is away for so long; no new plan looks for a way around it."""
        self.simulation.plans = False
        self.until = self.simulation.clock.seconds + seconds
        node, copy = next((node, copy) for node in self.nodes for copy in node.alive() if copy.served)
        self._hit([copy])
        self.tools.gateway.away.add(node.name)
        node.kill(copy.id)
        while not settled(self):
            self.advance(1)

    def look(self) -> None:
        super().look()
        if self.simulation.clock.seconds >= self.until:
            self.tools.gateway.away.clear()

    def note_failed_steps(self) -> None:
        """Notes that a step of a service failed twice, just now."""
        at = {"at": self.simulation.clock.now().timestamp()}
        noted = self.simulation.database.write(lambda connection: connection.execute(FAILED_TWICE, at).rowcount)
        assert noted == 1


@pytest.mark.slow
@pytest.mark.parametrize("rests", [True, False])
def test_the_rest_after_a_failed_step_is_no_time_to_recover(database_url: str, tmp_path: Path, rests: bool) -> None:
    with campaign_fleet(database_url, tmp_path / "fleet", 1) as (simulation, gateway, disk):
        tools = CampaignTools(database_url, tmp_path / "fleet", gateway, disk, "media", [])
        campaign = HeldUp(simulation, 1, tools=tools)
        campaign.advance(WARM_UP_SECONDS)
        assert settled(campaign) == []
        campaign.hold_up(HELD_UP_SECONDS)
        if rests:
            campaign.note_failed_steps()
        recover(campaign, CYCLES)
        assert bool(campaign.violations) is not rests, campaign.violations
        assert all(found.startswith("not recovered: ") for found in campaign.violations)
