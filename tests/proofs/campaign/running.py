"""Runs one campaign: faults every few seconds, and now and then a pause in which the fleet must recover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.control.domain.failures import LONGEST_DELAY, group_failures, read_failures, retry_delay
from app.store.plans import plans
from simulation.run import Simulation
from tests.proofs.campaign.down import DOWN_FAULTS
from tests.proofs.campaign.faults import CAMPAIGN_FAULTS, CampaignTools
from tests.proofs.campaign.identity import IDENTITY_FAULTS
from tests.proofs.campaign.invariants import PREFERENCE, Campaign
from tests.proofs.campaign.people import PEOPLE_FAULTS
from tests.proofs.campaign.removals import REMOVALS, removed
from tests.proofs.campaign.world import RATES, campaign_fleet
from tests.simulation.test_chaos import settled

WARM_UP_SECONDS = 90.0
PAUSE_EVERY_FAULTS = 100
RECOVERY_CYCLES = 6
LOOK_SECONDS = 5.0  # between two looks at a fleet that recovers
SPELL_FACTOR = 0.2  # faults come every few seconds, so each lasts a fraction of its usual time
TENANT = "media"
KINDS: tuple[str, ...] = CAMPAIGN_FAULTS + IDENTITY_FAULTS + DOWN_FAULTS + PEOPLE_FAULTS


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """The faults, checks and findings of a campaign."""

    faults: int
    kinds: Mapping[str, int]
    virtual_seconds: float
    checks: int
    violations: tuple[str, ...]
    pairs: frozenset[tuple[str, str]]  # of a state and a fault that struck there


def run_campaign(database_url: str, folder: Path, seed: int, faults: int, removal: str = "") -> CampaignResult:
    """Strikes with so many faults; without a defence it ends at the first violation."""
    with campaign_fleet(database_url, folder, seed) as (simulation, gateway, disk), removed(removal, database_url):
        foreign = [f"{tenant}-{number}" for tenant in RATES if tenant != TENANT for number in range(len(RATES[tenant]))]
        tools = CampaignTools(database_url, folder, gateway, disk, TENANT, foreign)
        kinds = KINDS
        if removal:  # every other fault is one that the defence is for
            kinds += tuple(REMOVALS[removal].faults) * (len(KINDS) // len(REMOVALS[removal].faults))
        preference = 0 if removal else PREFERENCE
        campaign = Campaign(simulation, seed, kinds, SPELL_FACTOR, tools=tools, preference=preference)
        campaign.advance(WARM_UP_SECONDS)
        for number in range(1, faults + 1):
            campaign.strike()
            campaign.advance(campaign.rng.uniform(2, 8))
            if removal and any(found.startswith(REMOVALS[removal].invariant) for found in campaign.violations):
                break
            if number % PAUSE_EVERY_FAULTS == 0:
                recover(campaign)
        else:
            recover(campaign)
        campaign.at_the_end()
        return CampaignResult(
            len(campaign.struck),
            Counter(campaign.struck),
            simulation.clock.seconds,
            campaign.checks,
            tuple(campaign.violations),
            frozenset(campaign.pairs),
        )


def recover(campaign: Campaign, cycles: int = RECOVERY_CYCLES) -> None:
    """Ends every fault; within so many cycles everything must be as the plan in force has it.

    A service whose step failed under the last faults rests before its retry. That time does not count, up to the
    longest rest, so that a service that goes on failing has not recovered.
    """
    campaign.mend()
    left_seconds = cycles * campaign.simulation.planner.cycle_seconds
    rest_seconds = LONGEST_DELAY.total_seconds()
    while left_seconds > 0:
        is_resting = rest_seconds > 0 and rests(campaign.simulation)
        campaign.advance(LOOK_SECONDS)
        if not settled(campaign):
            return
        if is_resting:
            rest_seconds -= LOOK_SECONDS
        else:
            left_seconds -= LOOK_SECONDS
    campaign.violations += [f"not recovered: {what}" for what in settled(campaign)]


def rests(simulation: Simulation) -> bool:
    """Returns whether a service or job waits for the retry of a step that failed."""
    now, plan = simulation.clock.now(), simulation.database.read(plans.read_plan_in_force)
    failures = group_failures(read_failures(plan.progress), now) if plan else ()
    return any(now < found.last_at + retry_delay(found.times) for found in failures)
