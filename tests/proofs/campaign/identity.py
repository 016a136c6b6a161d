"""Faults of identity: other UUIDs or places of GPUs, a lost or an older state folder, a name used again, another boot.

Each strikes while the node is off. Invariant I9: a node that is heard knows every device that is there by its place,
or by its board if its folder knows no place any more, and the control plane knows it as the node does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import Connection, text

from app.manifests.model import JSON
from app.world.join import join_node
from simulation.world import ACTOR
from tests.proofs.campaign.boards import (
    Board,
    boards_of,
    change_boot,
    lose_state,
    order_boards,
    other_board,
    power_off,
    power_on,
    put_boards,
    take_snapshot,
)
from tests.proofs.campaign.faults import CampaignFaults
from tests.proofs.campaign.node import CampaignNode

IDENTITY_FAULTS = (
    "uuids_changed",
    "boards_permuted",
    "board_replaced",
    "board_gone",
    "bus_renumbered",
    "state_folder_lost",
    "name_reused",
    "snapshot_restored",
    "boot_changed",
)
UNKNOWN_SECONDS = 60.0  # for which a node that is heard may know its devices otherwise than they are
LOOK_SECONDS = 15.0
NEW_SNAPSHOT_SHARE = 0.3  # of the faults before which a node has a snapshot already
STATUSES = text("SELECT name, status -> 'gpus' AS gpus FROM object WHERE kind = 'Node'")


@dataclass
class IdentityFaults(CampaignFaults):
    """Injects them beside the faults of the campaign, and checks I9."""

    _boards: int = 0
    _snapshots: dict[str, Callable[[Path], None]] = field(default_factory=dict)
    _wrong_seconds: dict[str, float] = field(default_factory=dict)  # by node, while it was heard
    _looked_at: float = 0.0

    def uuids_changed(self) -> None:
        """A virtual machine was stopped and started: every GPU is another."""
        node = self.pick()
        self.restart(node, [self._other(board) for board in boards_of(node)])

    def boards_permuted(self) -> None:
        """Each board is in the place of the next."""
        node = self.pick()
        boards = boards_of(node)
        moved = [*boards[1:], boards[0]]
        self.restart(node, [replace(board, pci=was.pci) for board, was in zip(moved, boards, strict=True)])

    def board_replaced(self) -> None:
        node = self.pick()
        boards = boards_of(node)
        place = self.rng.randrange(len(boards))
        boards[place] = self._other(boards[place])
        self.restart(node, boards)

    def board_gone(self) -> None:
        """A GPU does not come back with its machine, for a while; the indexes have a gap meanwhile."""
        node = self.pick()
        gpu = self.rng.randrange(len(node.uuids))
        self.restart(node, boards_of(node), gone=[gpu])
        self._later(60, 200, lambda: self._give_back(node, gpu))

    def bus_renumbered(self) -> None:
        """Every board has another address; their order stays."""
        node = self.pick()
        self._boards += 1
        bus = f"{self._boards % 0xFFFF:04X}"
        self.restart(node, [replace(board, pci=f"{bus}{board.pci[4:]}") for board in boards_of(node)])

    def state_folder_lost(self) -> None:
        """The node joins again under its name."""
        node = self.pick()
        self.restart(node, boards_of(node), lose_state)
        self.join(node)

    def name_reused(self) -> None:
        """Another machine joins under the node's name."""
        node = self.pick()
        self.restart(node, [self._other(board) for board in boards_of(node)], lose_state)
        self.join(node)

    def snapshot_restored(self) -> None:
        """The state folder is what it was at an earlier fault; the GPUs are others, or those of now."""
        node = self.pick()
        restore = self._snapshots.get(node.name) or take_snapshot(node)
        boards = boards_of(node)
        self.restart(node, boards if self.rng.random() < 0.5 else [self._other(board) for board in boards], restore)

    def boot_changed(self) -> None:
        node = self.pick()
        self.restart(node, boards_of(node), change_boot)

    def _other(self, board: Board) -> Board:
        self._boards += 1
        return other_board(board, f"{self._boards:08d}")

    def restart(
        self,
        node: CampaignNode,
        boards: Sequence[Board],
        change: Callable[[Path], None] = lambda folder: None,
        gone: Sequence[int] = (),
    ) -> None:
        """Powers a node off, changes its boards and its state folder, and powers it on; some GPUs are then gone."""
        self._hit(node.alive())
        if node.name not in self._snapshots or self.rng.random() < NEW_SNAPSHOT_SHARE:
            self._snapshots[node.name] = take_snapshot(node)
        power_off(node)
        put_boards(node, boards)
        change(node.folder.path)
        order_boards(node)
        for gpu in gone:
            node.lose(gpu)
        power_on(node)
        self._marks.pop(node.name, None)  # an older folder does not know what the agent has seen
        self.simulation.post.silence([node.name], self.simulation.post.lines[node.name].how)

    def join(self, node: CampaignNode) -> None:
        """Lets the node join again under its name."""

        def joined(connection: Connection) -> None:
            spec: dict[str, JSON] = {"gpuType": node.gpu_type, "gpus": len(node.uuids)}
            assert not join_node(connection, ACTOR, node.name, spec)

        self.simulation.database.write(joined)

    # Invariant I9.

    def look_at_devices(self) -> None:
        """Checks I9 now and then, for nodes that the control plane hears."""
        now = self.simulation.clock.seconds
        if now < self._looked_at:
            return
        seconds, self._looked_at = now + LOOK_SECONDS - self._looked_at, now + LOOK_SECONDS
        known = {
            row.name: {gpu["index"]: gpu["uuid"] for gpu in row.gpus or () if gpu.get("reason") != "missing"}
            for row in self.simulation.database.read(lambda c: list(c.execute(STATUSES)))
        }
        for node in self.nodes:
            there = {index: uuid for index, uuid in enumerate(node.uuids) if index not in node.lost}
            own = {index: gpu.uuid for index, gpu in node.agent.watch.devices.there.items()}
            is_heard = self.simulation.plans and self.simulation.post.lines[node.name].how in ("as usual", "doubled")
            if own == there and {index: known[node.name].get(index) for index in there} == there:
                self._wrong_seconds.pop(node.name, None)
            elif is_heard:
                self._wrong_seconds[node.name] = self._wrong_seconds.get(node.name, 0.0) + seconds
            if self._wrong_seconds.get(node.name, 0.0) > UNKNOWN_SECONDS:
                what = f"has {there}, takes them for {own}, and the control plane for {known[node.name]}"
                self._violated("I9", f"{node.name} {what}")
                self._wrong_seconds.pop(node.name)
