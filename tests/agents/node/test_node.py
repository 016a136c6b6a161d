"""State that a node keeps when its agent ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.host.clocks import boot_id
from agents.node.state_folder import StateFolder
from agents.policy.power import Energy
from tests.support.nodes import assigned, machine, ready, running, served
from tests.support.patience import until


@pytest.mark.slow
def test_the_energy_of_a_gpu_continues_where_the_last_agent_stopped(tmp_path: Path) -> None:
    with machine(tmp_path, ["v100-16gb"]) as made:
        (gpu,) = made.uuids
        with running(made) as node:
            node.offer(assigned(1, served("search-1")))
            until(lambda: ready(node, "search-1") and node.watch.devices.energy_mj(gpu) > 0, "something is drawn")
        before = StateFolder(made.folder / "state").energy()[gpu]
        with running(made, incarnation=2) as node:
            until(lambda: node.watch.devices.energy_mj(gpu) > before.total_mj, "it grows on")
            assert node.watch.devices.energy[gpu].resets == 0


def test_times_of_an_earlier_boot_are_not_gone_on_from(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.keep_energy({"GPU-a": Energy(total_mj=5, counter_mj=5, at=100.0)})
    assert folder.energy()["GPU-a"].at == 100.0
    text = (tmp_path / "energy.json").read_text()
    (tmp_path / "energy.json").write_text(text.replace(boot_id(), "another"))
    assert folder.energy()["GPU-a"] == Energy(total_mj=5, counter_mj=5)
