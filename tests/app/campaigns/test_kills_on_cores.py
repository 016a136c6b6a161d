"""Agents of CPU cores die at random moments while they measure a real model: nothing is lost, nothing is invented."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from agents.runtime.core_groups import CoreGroups
from agents.runtime.core_limits import find_limits
from agents.runtime.process import ProcessRuntime
from scripts.house.typed import DOCS
from tests.app.campaigns.running import asked, settings_of
from tests.app.campaigns.test_kills import kept_on_disk, note
from tests.support.agents import AgentProcess
from tests.support.needs import need_cores
from tests.support.server import RunningServer
from tests.support.soak import scaled
from tests.support.world import model

KILLS = scaled(20, 3)
LONGEST_PAUSE_SECONDS = 3.0  # a measurement takes about two
MOST = scaled(16, 5)
SETTINGS = {"batches": [1, 2, 4, 8], "smPercents": [20, 40, 60, 100], "leastSeconds": 0.2, "accuracy": 0.9}
SEAMS = ("--device", "cores", "--cores", "1", "--models", str(DOCS))


@pytest.mark.slow
def test_killed_while_it_measures_a_real_model_it_goes_on(api: RunningServer, tmp_path: Path) -> None:
    need_cores()
    runtime = {"template": "gpuwright-serve", "args": {"model": "digits", "file": "digits.onnx"}}
    variants = [{"name": "onnx", "accuracy": 0.9, "runtime": runtime}]
    assert api.request("POST", "/api/v1/apply", [model("digits", variants=variants)]).status == 200
    agent = AgentProcess(api, tmp_path / "agent", gpus=1)
    rng = random.Random(7)
    kept = []
    seen: dict[int, dict[str, object]] = {}
    try:
        agent.start(*SEAMS)
        campaign = asked(api, model="digits", gpu=0, most=MOST, **SETTINGS)
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.0, LONGEST_PAUSE_SECONDS))
            assert campaign.read()["endedAt"] is None, "every kill hits the campaign"
            agent.end(signal.SIGKILL)
            if left := kept_on_disk(agent):
                kept.append(left)
            note(seen, campaign)
            agent.start(*SEAMS)
        ended = campaign.until_ended(agent)
        note(seen, campaign)
        assert ended["state"] == "done", ended["message"]
        settings = settings_of(ended)
        assert len(settings) == len(set(settings)), "each setting is measured once"
        assert [found["sequence"] for found in ended["measurements"]] == list(range(1, len(settings) + 1))
        assert len(settings) == len(seen) > 0
        for left in kept:
            assert ended["measurements"][left["sequence"] - 1] == left, "what was on disk when the agent died counts"
        assert agent.copies() == [], "no measured copy is left"
    finally:
        agent.close()
        groups = CoreGroups((tmp_path / "agent" / "copies").resolve(), find_limits())
        ProcessRuntime(tmp_path / "agent" / "copies", groups).tidy(())
