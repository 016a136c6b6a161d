"""The GPUs of a node as a device plugin gives them out: each to one container, which learns its UUID."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

RESOURCE = "nvidia.com/gpu"
_FILE = "devices"


class Devices:
    """It remembers nothing that the folders of pods do not say."""

    def __init__(self, uuids: Sequence[str], folder: Path) -> None:
        self.uuids = tuple(uuids)
        self._folder = folder
        self._lock = Lock()

    def give(self, pod: Path, count: int) -> list[str]:
        """Returns the GPUs of a pod, the same each time that it asks; too few where there are no others."""
        with self._lock:
            own = pod / _FILE
            own.parent.mkdir(parents=True, exist_ok=True)
            if not own.exists():
                given = {uuid for file in self._folder.glob(f"*/{_FILE}") for uuid in file.read_text().split()}
                own.write_text(" ".join([uuid for uuid in self.uuids if uuid not in given][:count]))
            return own.read_text().split()
