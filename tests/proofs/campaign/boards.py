"""Changes what a node of the campaign is: its boards, their places and UUIDs, its state folder and its boot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agents.devices.simulated.daemon import SimulatedDaemon
from agents.devices.simulated.gpu import SimulatedGpu
from agents.devices.simulated.machine import SimulatedSlot
from agents.host import durable
from agents.seams.device import Ability
from tests.proofs.campaign.node import CampaignNode

OF_A_BOOT = ("health.json", "energy.json")
OTHER_BOOT = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Board:
    """A board as its driver names it, and its place."""

    uuid: str
    serial: str
    pci: str


def boards_of(node: CampaignNode) -> list[Board]:
    """Returns the boards in the order of their places."""
    return [Board(slot.gpu.uuid, slot.gpu.serial, slot.gpu.pci) for slot in node.machine.slots.values()]


def other_board(board: Board, mark: str) -> Board:
    """Returns another board in the same place."""
    return replace(board, uuid=f"{board.uuid[:12]}-{mark}", serial=mark)


def power_off(node: CampaignNode) -> None:
    """Ends every process of the node, and leaves on its disk what was durable."""
    for process in node.processes():
        node.kill(process.launch.copy)
    node.machine.advance(node.machine.now)
    node.machine.processes.clear()  # another boot knows none of them
    node.disk.cut_power(node.folder.path)


def put_boards(node: CampaignNode, boards: Sequence[Board]) -> None:
    """Puts these boards into a node that is off, in the place of those that were there."""
    kinds = [slot.gpu.kind for slot in node.machine.slots.values()]
    node.machine.slots.clear()
    for kind, board in zip(kinds, sorted(boards, key=lambda board: board.pci), strict=True):
        gpu = SimulatedGpu(kind, board.uuid, board.pci, node.machine.now, board.serial)
        node.machine.slots[board.uuid] = SimulatedSlot(gpu, SimulatedDaemon(gpu))
        node.machine.unsupported(board.uuid, Ability.CAP_POWER)
    node.uuids = tuple(node.machine.slots)
    node.lost.clear()


def order_boards(node: CampaignNode) -> None:
    """Orders a node's boards by the indexes that its agent must give them by what its folder knows.

    An index stays at its place, else with its board; what is left is ordered by place. Only an older folder on a bus
    that was renumbered since makes this another order than that of the places.
    """
    boards, known = boards_of(node), node.folder.node_record().gpus
    at = {board.pci: board.uuid for board in boards}
    order = {index: at[gpu.place] for index, gpu in known.items() if gpu.place in at}
    left = {board.uuid for board in boards} - set(order.values())
    order |= {index: gpu.uuid for index, gpu in known.items() if index not in order and gpu.uuid in left}
    rest = iter([board.uuid for board in boards if board.uuid not in order.values()])
    node.uuids = tuple(order[index] if index in order else next(rest) for index in range(len(boards)))


def power_on(node: CampaignNode) -> None:
    """Starts the agent from what is in the folder, under a number above every earlier one, as clocks give it."""
    earlier = node.memory.incarnation
    node.memory = node.folder.memory()
    node.memory.incarnation = max(node.memory.incarnation, earlier)
    node.version = node.memory.assignment.version if node.memory.assignment else 0
    node.restart()
    node.note_copies()


def lose_state(folder: Path) -> None:
    """Empties the state folder of an agent that does not run."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix != ".lock":
            path.unlink()


def take_snapshot(node: CampaignNode) -> Callable[[Path], None]:
    """Returns what puts the state folder back as its disk is now."""
    copy = node.folder.path.with_name(f"{node.name}-snapshot")
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for path in node.folder.path.iterdir():
        if path.is_file() and path.suffix != ".lock" and node.disk.durable(path):
            (copy / path.name).write_bytes(node.disk.durable(path))

    def restore(folder: Path) -> None:
        lose_state(folder)
        for path in copy.iterdir():
            durable.write(folder / path.name, path.read_bytes())

    return restore


def change_boot(folder: Path) -> None:
    """Makes what the folder keeps of one boot another boot's."""
    for name in OF_A_BOOT:
        path = folder / name
        if path.exists():
            known = json.loads(path.read_text())
            durable.write(path, json.dumps(known | {"bootId": OTHER_BOOT}).encode())
