"""A campaign from its request to its Profile: a real server, a real agent, a real copy on a simulated GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.campaigns.running import LATENCY, MEMORY_GIB, asked, declare_model, settings_of
from tests.support.agents import running_agent
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow


def test_a_campaign_measures_a_copy_and_its_profile_can_be_applied(api: RunningServer, tmp_path: Path) -> None:
    with running_agent(api, tmp_path / "agent") as agent:
        declare_model(api)
        campaign = asked(api, gpu=1, most=6)
        ended = campaign.until_ended(agent)
    assert ended["state"] == "done", ended["message"]
    settings = settings_of(ended)
    assert len(settings) == len(set(settings)) == 6
    assert [found["sequence"] for found in ended["measurements"]] == list(range(1, 7))
    for found in ended["measurements"]:
        true = LATENCY[found["setting"]["batch"]][int(found["setting"]["smPercent"])]
        assert found["latencyMs"] >= 0.99 * true, "a busy machine may make it longer, and nothing shorter"
        assert found["memoryGib"] == pytest.approx(MEMORY_GIB, abs=0.01)
        assert found["samples"] >= 3
    spec = ended["profiles"][0]["spec"]
    assert spec["latencyMs"].keys() == {"1", "4"}
    assert spec["memoryGib"] == {"1": 1.5, "4": 1.5}
    assert api.request("POST", "/api/v1/apply", ended["profiles"]).status == 200


def test_a_copy_that_exits_is_tried_twice_before_its_campaign_fails(api: RunningServer, tmp_path: Path) -> None:
    with running_agent(api, tmp_path / "agent") as agent:
        declare_model(api, latency="no times")
        campaign = asked(api, gpu=0, batches=[1], smPercents=[100])
        ended = campaign.until_ended(agent)
    assert ended["state"] == "failed"
    assert len(ended["failures"]) == 2, ended["failures"]
