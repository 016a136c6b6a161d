"""Agent and server die at random moments of a campaign: no measurement is lost, and none is invented."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.app.campaigns.running import Asked, asked, declare_model, settings_of
from tests.support.agents import AgentProcess, running_agent
from tests.support.patience import until
from tests.support.server import RunningServer
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

MOST = 8
SM_PERCENTS = [10, 20, 30, 60, 100]
KILLS = scaled(20, 5)
LONGEST_PAUSE_SECONDS = 1.5


def kept_on_disk(agent: AgentProcess) -> dict[str, Any] | None:
    """The result that the agent had measured, and that no server may have taken yet."""
    try:
        found = json.loads((agent.folder / "measured.json").read_bytes()).get("measured")
    except FileNotFoundError:
        return None
    return dict(found) if found else None


def kill_agent(agent: AgentProcess) -> dict[str, Any] | None:
    agent.end(signal.SIGKILL)
    left = kept_on_disk(agent)
    agent.start()
    return left


def test_killed_at_random_moments_it_goes_on_with_every_measurement(api: RunningServer, tmp_path: Path) -> None:
    rng = random.Random(5)
    kept: list[dict[str, Any]] = []
    seen: dict[int, dict[str, Any]] = {}
    with running_agent(api, tmp_path / "agent") as agent:
        declare_model(api)
        campaign = asked(api, gpu=0, most=MOST, smPercents=SM_PERCENTS, accuracy=0.9)
        for number in range(KILLS):
            time.sleep(rng.uniform(0.0, LONGEST_PAUSE_SECONDS))
            if number % 3 == 2:
                api.restart()
            elif left := kill_agent(agent):
                kept.append(left)
            note(seen, campaign)
        ended = campaign.until_ended(agent)
        leftovers = agent.copies()
    assert ended["state"] == "done", ended["message"]
    note(seen, campaign)
    settings = settings_of(ended)
    assert len(settings) == MOST == len(set(settings)), "each setting is measured once"
    assert [found["sequence"] for found in ended["measurements"]] == list(range(1, MOST + 1))
    for left in kept:
        assert ended["measurements"][left["sequence"] - 1] == left, "what was on disk when the agent died counts"
    assert leftovers == [], "no measured copy is left"


def test_what_was_measured_while_the_server_was_away_counts_although_the_agent_dies(
    api: RunningServer, tmp_path: Path
) -> None:
    with running_agent(api, tmp_path / "agent") as agent:
        declare_model(api)
        campaign = asked(api, gpu=0, most=MOST, smPercents=SM_PERCENTS, accuracy=0.9)
        until(lambda: campaign.count() >= 1, agent.said_log())
        api.kill()
        until(lambda: kept_on_disk(agent) is not None, agent.said_log())
        left = kill_agent(agent)
        api.restart()
        ended = campaign.until_ended(agent)
    assert left is not None
    assert ended["measurements"][left["sequence"] - 1] == left
    assert len(settings_of(ended)) == MOST == len(set(settings_of(ended)))


def note(seen: dict[int, dict[str, Any]], campaign: Asked) -> None:
    """Notes every measurement, and that those noted before are as they were."""
    for found in campaign.read()["measurements"]:
        assert seen.setdefault(found["sequence"], found) == found


def test_an_agent_that_starts_again_ends_the_copy_that_the_last_one_measured(
    api: RunningServer, tmp_path: Path
) -> None:
    with running_agent(api, tmp_path / "agent") as agent:
        declare_model(api, startSeconds=30)
        campaign = asked(api, gpu=0)
        until(agent.copies, "a copy is measured")
        (first,) = agent.copies()
        agent.end(signal.SIGKILL)
        assert agent.copies() == [first]
        assert api.request("DELETE", f"/api/v1/campaigns/{campaign.id}").status == 200
        agent.start()
        until(lambda: agent.copies() == [], "the copy has ended")
