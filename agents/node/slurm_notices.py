"""Reads from Slurm whether its nodes here are drained; a file may say when the cloud takes the machine back."""

from __future__ import annotations

from collections.abc import Sequence

from agents.node.reclaim_file import ReclaimFile, WatchedNotices
from agents.runtime import LaunchError
from agents.runtime.slurm_commands import SlurmCommands

FILE_LOOKS_PER_SLURM_LOOK = 10  # of the file, to one at Slurm, whose controller answers all nodes
DRAINED = "DRAIN"


class SlurmNotices(WatchedNotices):
    """What Slurm says of this machine, as last known: while its controller is away, nothing new is due."""

    def __init__(self, slurm: SlurmCommands, nodes: Sequence[str], file: ReclaimFile | None = None) -> None:
        super().__init__()
        self._slurm = slurm
        self._nodes = tuple(nodes)
        self._file = file
        self._looks = 0

    def look(self) -> bool:
        """Looks at the file and, less often, at Slurm; returns whether anything has changed for the copies here."""
        changed = False
        if self._file is not None:
            changed, self.deadline = self._file.look(), self._file.deadline
        if self._looks % FILE_LOOKS_PER_SLURM_LOOK == 0:
            changed = self._look_drained() or changed
        self._looks += 1
        return changed

    def _look_drained(self) -> bool:
        """Returns whether all of Slurm's nodes here have been drained, or are used again."""
        before = self.drained
        try:
            self.drained = all(DRAINED in self._slurm.read_state(node) for node in self._nodes)
            self.away = ""
        except LaunchError as error:
            self.away = str(error)
        return self.drained != before
