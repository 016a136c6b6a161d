"""Keeps which device each GPU index means, and which GPUs an operator has drained, on disk before it is in force."""

from __future__ import annotations

from collections.abc import Callable, Collection

from agents.node.gpu_indexes import GpuIndexes
from agents.node.state_folder import NodeRecord, StateFolder


class RecordKeeper:
    """The node's record; `drain` gets the GPUs that are to be emptied."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._record = folder.node_record()
        self.drain: Callable[[Collection[str]], None] = lambda gpus: None

    @property
    def gpus(self) -> GpuIndexes:
        return self._record.gpus

    @property
    def draining(self) -> tuple[str, ...]:
        return tuple(self._record.draining)

    def keep_gpus(self, gpus: GpuIndexes) -> None:
        """Saves which device each index means; an operator's drain stays with the index, if that is known."""
        before = {gpu.uuid: index for index, gpu in self._record.gpus.items()}
        drained = {before.get(uuid, uuid) for uuid in self._record.draining}
        draining = [gpu.uuid for index, gpu in gpus.items() if not drained.isdisjoint((index, gpu.uuid))]
        self._keep(NodeRecord(dict(gpus), sorted(draining)))

    def keep_draining(self, draining: Collection[str]) -> None:
        """Saves which GPUs are drained."""
        self._keep(NodeRecord(self._record.gpus, sorted(draining)))

    def _keep(self, record: NodeRecord) -> None:
        self._folder.keep_node_record(record)  # raises on a full disk, so that no drain is in force without being saved
        self._record = record
        self.drain(record.draining)
