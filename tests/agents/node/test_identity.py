"""A machine with other GPUs than before serves again: an index is a place, and a node reports what is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agents.devices.mps import MpsControl
from agents.devices.nvml.device import NvmlDevice
from agents.devices.simulated.driver import MACHINE_ID
from agents.devices.simulated.remote import ensure_driver
from agents.keeper.drivers import NodeDrivers
from agents.node.node import LocalNode
from agents.node.parts import NodeParts
from agents.node.state_folder import StateFolder
from agents.run.opening import NoGateway
from agents.runtime.process import ProcessRuntime
from agents.talk.copy_client import TcpCopyClient
from agents.templates.reading import read
from tests.support.nodes import Machine, assigned, machine, ready, running, served
from tests.support.nvml_stub import NvmlState, load, needs_gcc
from tests.support.nvml_stub.state import VARIABLE, uuid_of
from tests.support.patience import until

KINDS = ["v100-16gb", "v100-16gb"]


def restart_with_other_uuids(made: Machine) -> None:
    """What a cloud does to a virtual machine that is stopped and started."""
    for running_copy in ProcessRuntime(made.folder / "copies").find():
        ProcessRuntime(made.folder / "copies").end(running_copy, force=True)
    made.switches.quit()
    (made.driver / MACHINE_ID).unlink()
    ensure_driver(made.driver, KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("folder_is_lost", [False, True])
def test_a_node_whose_gpus_have_other_uuids_serves_and_reports_them(tmp_path: Path, folder_is_lost: bool) -> None:
    with machine(tmp_path, KINDS) as made:
        before = made.uuids
        assignment = assigned(1, served("search-1", gpu=0), served("images-1", gpu=1))
        with running(made) as node:
            node.offer(assignment)
            until(lambda: ready(node, "search-1", "images-1"), "both serve")
        restart_with_other_uuids(made)
        after = made.uuids
        assert not set(before) & set(after)
        if folder_is_lost:
            shutil.rmtree(tmp_path / "state")
        with running(made, incarnation=2) as node:
            node.offer(assignment)
            until(lambda: ready(node, "search-1", "images-1"), "both serve again")
            assert [(gpu.index, gpu.uuid) for gpu in node.inventory().gpus] == list(enumerate(after))
            assert {copy.gpu for copy in node.keeper.copies()} == set(after)
            if not folder_is_lost:  # what ran before is paid for, by the index that it had
                usage = node.report_body(*node.current_minute()).usage
                ended = {(interval.gpu, interval.gpu_uuid) for interval in usage if interval.ended_at}
                assert ended == set(enumerate(before))


class Boards:
    """A node over NVML's stand-in, whose boards change while its agent is off."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = NvmlState(folder / "nvml", gpus=3)

    def opened(self) -> LocalNode:
        """The node's agent, which has looked once."""
        device = NvmlDevice(self.folder / "originals.json", settle_seconds=0.1)
        runtime = ProcessRuntime(self.folder / "copies")
        drivers = NodeDrivers(device, MpsControl(self.folder / "mps"), runtime, TcpCopyClient())
        node = LocalNode(StateFolder(self.folder / "state"), NodeParts(drivers, NoGateway(), read()), 1, workers=0)
        node.watch.tick()
        return node

    def reported(self) -> tuple[dict[int, str], str]:
        """The UUID of each index that the node reports, and what is unclear."""
        node = self.opened()
        found = node.inventory()
        node.stop()
        return {gpu.index: gpu.uuid for gpu in found.gpus}, found.unclear

    def swap(self, first: int, second: int) -> None:
        """Puts two boards into each other's slot."""
        places = [self.state.get(number, "pci") or "" for number in (second, first)]
        for number, place in zip((first, second), places, strict=True):
            self.state.set(number, "pci", place)


@pytest.fixture
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boards:
    load()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nvml"))
    return Boards(tmp_path)


A, B, C = (uuid_of(number) for number in range(3))


@needs_gcc
def test_boards_in_each_others_slots_have_each_others_index(boards: Boards) -> None:
    assert boards.reported() == ({0: A, 1: B, 2: C}, "")
    boards.swap(0, 2)
    assert boards.reported() == ({0: C, 1: B, 2: A}, "")


@needs_gcc
def test_a_board_that_is_gone_leaves_a_gap_and_one_in_its_place_fills_it(boards: Boards) -> None:
    boards.reported()
    boards.state.set(0, "absent", 1)
    assert boards.reported() == ({1: B, 2: C}, "")
    new = boards.state.add(3, pci=str(boards.state.get(0, "pci")))
    assert boards.reported() == ({0: new, 1: B, 2: C}, "")


@needs_gcc
def test_a_board_with_a_new_uuid_in_another_slot_is_known_by_its_serial(boards: Boards) -> None:
    boards.reported()
    for number in (1, 2):
        boards.state.set(number, "uuid", f"GPU-{number}-new")
        boards.state.set(number, "pci", f"00000000:{0x40 - number:02X}:00.0")
    assert boards.reported() == ({0: A, 1: "GPU-1-new", 2: "GPU-2-new"}, "")


@needs_gcc
def test_what_cannot_be_told_is_reported_and_joining_again_numbers_anew(boards: Boards) -> None:
    boards.reported()
    for number in (1, 2):
        boards.state.set(number, "absent", 1)
    new = [boards.state.add(number) for number in (3, 4)]
    indexes, unclear = boards.reported()
    assert indexes == {0: A}
    assert unclear.startswith(f"GPU 1 ({B} at 00000000:02:00.0), GPU 2 ({C} at 00000000:03:00.0) are gone and {new[0]}")
    StateFolder(boards.folder / "state").forget_indexes()
    assert boards.reported() == ({0: A, 1: new[0], 2: new[1]}, "")


@needs_gcc
def test_an_operators_drain_stays_with_the_index(boards: Boards) -> None:
    node = boards.opened()
    node.drain([1])
    node.stop()
    boards.state.set(1, "uuid", "GPU-new")
    node = boards.opened()
    assert node.draining == ("GPU-new",)
    node.stop()
    StateFolder(boards.folder / "state").forget_indexes()
    boards.state.set(0, "absent", 1)
    node = boards.opened()
    assert (node.draining, node.watch.indexes[0]) == (("GPU-new",), "GPU-new"), "with the device, when joined again"
    node.stop()


@needs_gcc
def test_a_device_that_is_away_while_the_node_joins_again_is_drained_when_it_is_back(boards: Boards) -> None:
    node = boards.opened()
    node.drain([1])
    node.stop()
    StateFolder(boards.folder / "state").forget_indexes()
    boards.state.set(1, "absent", 1)
    assert boards.reported() == ({0: A, 1: C}, "")
    (boards.folder / "nvml" / "gpu1" / "absent").unlink()
    node = boards.opened()
    assert (node.watch.indexes, node.draining) == ({0: A, 1: C, 2: B}, (B,))
    node.use([2])
    assert node.draining == ()
    node.drain([2])
    StateFolder(boards.folder / "state").forget_indexes()
    node.use(None)
    assert node.draining == (), "no device is drained any more, nor one without an index"
    node.stop()


@needs_gcc
def test_a_drain_stays_with_its_device_when_the_node_joins_again_while_its_agent_runs(boards: Boards) -> None:
    boards.reported()
    for number in range(3):  # the bus is numbered the other way round, elsewhere: indexes follow their UUIDs
        boards.state.set(number, "pci", f"00000000:{0x40 - number:02X}:00.0")
    node = boards.opened()
    node.drain([0])
    assert (node.watch.indexes[0], node.draining) == (A, (A,))
    StateFolder(boards.folder / "state").forget_indexes()  # as `join` does
    node.forget_indexes()
    node.watch.tick()
    assert (node.watch.indexes, node.draining) == ({0: C, 1: B, 2: A}, (A,))
    node.stop()
