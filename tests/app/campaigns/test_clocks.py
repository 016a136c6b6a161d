"""A campaign over clocks: each is locked while it is measured, and the Profile says what a lower one costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.devices.simulated.remote import connect
from tests.app.campaigns.running import asked, declare_model
from tests.app.campaigns.test_neighbours import agent_with_truth
from tests.support.server import RunningServer

CLOCKS = [600, 900]
ASKED = {"batches": [1, 4], "smPercents": [30, 100], "clocksMhz": CLOCKS, "most": 5, "accuracy": 0.2}


@pytest.mark.slow
def test_several_clocks_are_measured_and_give_both_exponents(api: RunningServer, tmp_path: Path) -> None:
    with agent_with_truth(api, tmp_path / "agent") as agent:
        declare_model(api)
        ended = asked(api, **ASKED, gpu=0, leastSeconds=3).until_ended(agent)
        device, _ = connect(tmp_path / "agent" / "simulated")
        (gpu,) = device.gpus()
        clock_mhz = device.read(gpu.uuid).sm_clock_mhz
        device.close()
    assert ended["state"] == "done", ended["message"]
    assert ended["clocksMhz"] == [*CLOCKS, 1530]
    measured = {found["setting"]["clockMhz"] for found in ended["measurements"]}
    assert len(measured) > 1
    for found in ended["measurements"]:
        assert abs(found["smClockMhz"] - found["setting"]["clockMhz"]) <= 20
    (profile,) = ended["profiles"]
    assert profile["spec"]["clockExponent"] > 0
    assert profile["spec"]["powerExponent"] > 0
    assert clock_mhz not in CLOCKS, "the clock is free again"
