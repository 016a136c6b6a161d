"""Nodes are emptied, die and come back; GPUs are set as planned; the planner's solver dies."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from agents.devices.simulated.remote import Switches, connect
from tests.tour.running import TourFleet
from tests.tour.solver_processes import dying_solvers, find_solvers
from tests.tour.world import served

pytestmark = pytest.mark.timeout(240)  # the fleet comes to rest several times

OTHER = {"north": "south", "south": "north"}


def test_a_drained_node_hands_its_copies_over_before_it_loses_them_and_takes_others_once_it_is_back(
    fleet: TourFleet,
) -> None:
    with fleet.declared(served("moved", "drained")):
        fleet.until(lambda: bool(fleet.copies("drained/moved")), "it is served")
        (node,) = fleet.nodes_of("drained/moved")
        try:
            fleet.cli("drain", node)

            def moved() -> bool:
                places = fleet.nodes_of("drained/moved")
                assert places, "it is served all the time"
                return places == {OTHER[node]}

            fleet.until(moved, f"it has left {node}")
            fleet.until(lambda: not fleet.agents[node].copies(), f"{node} is empty")
        finally:
            fleet.cli("uncordon", node)
    assert fleet.get("cordons")["items"] == []


def test_a_node_that_dies_is_replaced_by_others_and_is_used_again_when_it_returns(fleet: TourFleet) -> None:
    with fleet.declared(served("survivor", "struck", minInstances=1)):
        fleet.until(lambda: bool(fleet.copies("struck/survivor")), "it is served")
        (node,) = fleet.nodes_of("struck/survivor")
        try:
            fleet.kill_node(node)
            fleet.until(lambda: fleet.nodes_of("struck/survivor") == {OTHER[node]}, f"{OTHER[node]} has taken it over")
            assert "node_lost" in fleet.reasons()
        finally:
            fleet.revive_node(node)


def test_a_copy_that_ends_again_and_again_after_its_rollout_is_served_from_another_node(fleet: TourFleet) -> None:
    with fleet.declared(served("fragile", "struck")):
        fleet.until(lambda: bool(fleet.copies("struck/fragile")), "it is served")
        fleet.settled()
        (node,) = fleet.nodes_of("struck/fragile")

        def moved() -> bool:
            for running in fleet.agents[node].runtime.find():
                if running.copy.startswith("fragile-"):
                    with suppress(ProcessLookupError):
                        os.kill(running.pid, signal.SIGKILL)
            return fleet.nodes_of("struck/fragile") == {OTHER[node]}

        fleet.until(moved, f"{OTHER[node]} has taken it over")
        assert "instance_down" in fleet.reasons()
        (told,) = fleet.get("events?reason=instance_down&kind=Service")["items"]
        assert (told["tenant"], told["name"]) == ("struck", "fragile")
        assert f"on {node}/" in told["message"]


def test_a_gpu_has_the_clock_and_its_copies_have_the_sm_percent_that_the_plan_says(fleet: TourFleet) -> None:
    fleet.settled()
    (copy,) = fleet.copies("shop/search")
    (planned,) = fleet.planned("shop/search")
    device, mps = connect(fleet.agents[copy.node].folder / "simulated")
    switches = Switches(fleet.agents[copy.node].folder / "simulated")
    try:
        (gpu,) = device.gpus()
        assert planned["clockMhz"] < max(gpu.clocks_mhz), "energy has a price, so the highest clock is too dear"
        fleet.until(lambda: switches.truth(gpu.uuid).settings.locked_mhz == planned["clockMhz"], "the clock is locked")
        fleet.until(lambda: device.read(gpu.uuid).sm_clock_mhz == planned["clockMhz"], "and is what it reads back")
        (pid,) = [one.pid for one in fleet.agents[copy.node].runtime.find() if one.copy == copy.id]
        assert pid in mps.clients(gpu.uuid), "the driver knows it as a client under MPS"
        variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
        assert f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={planned['smPercent']:g}" in variables
    finally:
        switches.close()
        device.close()


def test_while_the_solver_dies_the_greedy_serves_what_is_new(fleet: TourFleet) -> None:
    fleet.settled()
    with dying_solvers(fleet.process.pid), fleet.declared(served("urgent", "unlucky")):
        fleet.until(lambda: bool(fleet.copies("unlucky/urgent")), "the greedy has placed it")
        assert {"solver_crashed", "fallback_planned"} <= fleet.reasons()
        messages = {event["message"] for event in fleet.get("events?reason=fallback_planned")["items"]}
        assert any("crashed; HetSev's greedy" in message for message in messages), messages
    fleet.until(lambda: bool(find_solvers(fleet.process.pid)), "another solver has taken its place")
