"""A campaign that measures models beside each other: real copies on one simulated GPU, slowed by a physics."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from agents.devices.simulated.connections import CONTROL
from tests.app.campaigns.running import LATENCY, ask, asked, declare_model
from tests.support.agents import AgentProcess, running_agent
from tests.support.forked import ROOT
from tests.support.patience import until
from tests.support.server import RunningServer
from tests.support.soak import scaled
from tests.support.world import profile

pytestmark = pytest.mark.slow

ACCURACY = scaled(3, 10) / 100
BESIDE = {"neighbours": ["other"], "batches": [4], "smPercents": [30, 60], "leastSeconds": 0.5, "accuracy": ACCURACY}
MOST = 3
KILLS = scaled(20, 3)
LONGEST_PAUSE_SECONDS = 12.0  # a measurement takes about that long
SPEC = {
    "kinds": ["v100-16gb"], "gpu_type": "v100-16gb", "idle_w": 40, "max_w": 300, "top_clock_mhz": 1530, "truth": "made",
    "seed": 3, "data": "", "memory": "", "plays": {},
}  # fmt: skip


@contextmanager
def agent_with_truth(api: RunningServer, folder: Path) -> Iterator[AgentProcess]:
    """An agent whose GPU has a truth of its own: its driver is started before the agent."""
    driver = folder / "simulated"
    driver.mkdir(parents=True)
    spec = driver / "truth.json"
    spec.write_text(json.dumps(SPEC | {"memory": str(folder / "none.json")}))
    words = [sys.executable, "-m", "simulation.truth_driver", str(driver), "--spec", str(spec)]
    process = subprocess.Popen(words, cwd=ROOT)
    try:
        until((driver / CONTROL).exists, "the driver is there")
        with running_agent(api, folder, 1) as agent:
            yield agent
    finally:
        process.kill()
        process.wait()


def declare_two(api: RunningServer, names: tuple[str, str] = ("tiny", "other")) -> None:
    """Two models with Profiles that say nothing of neighbours."""
    for name in names:
        declare_model(api, name)
        rows = {str(batch): {str(sm): ms for sm, ms in row.items()} for batch, row in LATENCY.items()}
        declared = profile(name, latencyMs=rows, memoryGib={"1": 1.5, "4": 1.5})
        assert api.request("POST", "/api/v1/apply", [declared]).status == 200


def test_models_are_measured_beside_each_other_and_their_profiles_get_pressures_and_sensitivities(
    api: RunningServer, tmp_path: Path
) -> None:
    with agent_with_truth(api, tmp_path / "agent") as agent:
        declare_two(api)
        campaign = asked(api, **BESIDE, gpu=0, most=3)
        ended = campaign.until_ended(agent)
    assert ended["state"] == "done", ended["message"]
    assert ended["neighbours"] == ["other/fp16"]
    for found in ended["measurements"]:
        mine, other = found["copies"]
        assert (mine["model"], other["model"]) == ("tiny", "other")
        assert mine["smPercent"] == found["setting"]["smPercent"]
        assert min(mine["samples"], other["samples"]) >= 3
    slowdowns = [copy["besideMs"] / copy["aloneMs"] for found in ended["measurements"] for copy in found["copies"]]
    assert median(slowdowns) > 1.03, "the physics slows them by 1.12 to 1.17"
    profiles = {made["spec"]["model"]: made["spec"] for made in ended["profiles"]}
    assert profiles.keys() == {"tiny", "other"}
    for spec in profiles.values():
        assert {"mean", "q90", "n", "at", "source"} == spec["sensitivity"].keys()
        assert spec["latencyMs"], "what was declared stays"
        assert spec["pressure"].keys() <= {"30", "60"}
    assert api.request("POST", "/api/v1/apply", ended["profiles"]).status == 200


def test_killed_at_random_moments_each_setting_counts_once_and_no_copy_is_left(
    api: RunningServer, tmp_path: Path
) -> None:
    rng = random.Random(7)
    with agent_with_truth(api, tmp_path / "agent") as agent:
        declare_two(api)
        campaign = asked(api, **BESIDE, gpu=0, most=MOST)
        until(lambda: len(agent.copies()) == 2, "both models run")
        seen: dict[int, dict[str, Any]] = {}
        for number in range(KILLS):
            if number % 3 == 2:
                api.restart()
            else:
                agent.end(signal.SIGKILL)
                agent.start()
            time.sleep(rng.uniform(0.0, LONGEST_PAUSE_SECONDS))
            for found in campaign.read()["measurements"]:
                assert seen.setdefault(found["sequence"], found) == found, "what was measured stays as it was"
        ended = campaign.until_ended(agent)
        until(lambda: not agent.copies(), "the copies ended")
    assert ended["state"] == "done", ended["message"]
    assert [found["sequence"] for found in ended["measurements"]] == list(range(1, len(ended["measurements"]) + 1))
    assert [found for found in ended["measurements"] if seen.get(found["sequence"], found) != found] == []
    settings = [json.dumps(found["setting"], sort_keys=True) for found in ended["measurements"]]
    assert 2 <= len(settings) == len(set(settings)) <= MOST, "each setting is measured once"


def test_a_neighbour_needs_a_profile_and_room_for_both(api: RunningServer, tmp_path: Path) -> None:
    with running_agent(api, tmp_path / "agent"):
        declare_two(api)
        declare_model(api, "strange")

        def refusal(**fields: Any) -> str:
            reply = ask(api, **BESIDE | fields)
            assert reply.status in (404, 422), reply.text
            return reply.text

        assert "strange/fp16 has no Profile on GpuType v100-16gb" in refusal(neighbours=["strange"])
        assert "no two of smPercents 60, 80 fit on one GPU" in refusal(smPercents=[60, 80])
        assert "leave clocksMhz out" in refusal(clocksMhz=[900])
        assert "missing" in refusal(neighbours=["missing"])
