"""Keeps which device each GPU index means, and which GPUs an operator has drained, on disk before it is in force."""

from __future__ import annotations

from collections.abc import Callable, Collection

from agents.node.gpu_indexes import GpuIndexes
from agents.node.state_folder import NodeRecord, StateFolder


class RecordKeeper:
    """The node's record, read from disk each time: a command that joins the node forgets its indexes there.

    `drain` gets the GPUs that are to be emptied.
    """

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self.drain: Callable[[Collection[str]], None] = lambda gpus: None

    @property
    def gpus(self) -> GpuIndexes:
        return self._folder.node_record().gpus

    @property
    def draining(self) -> tuple[str, ...]:
        return tuple(self._folder.node_record().draining)

    def keep_gpus(self, gpus: GpuIndexes) -> None:
        """Saves which device each index means.

        An operator's drain stays with the index, else with the device, which may be away when the node joins again.
        """
        record = self._folder.node_record()
        before = {gpu.uuid: index for index, gpu in record.gpus.items()}
        drained = {before.get(uuid, uuid) for uuid in record.draining}
        kept = {gpu.uuid for index, gpu in gpus.items() if not drained.isdisjoint((index, gpu.uuid))}
        self._keep(gpus, kept | (set(record.draining) - before.keys()))

    def keep_draining(self, draining: Collection[str]) -> None:
        """Saves which GPUs are drained."""
        self._keep(self.gpus, draining)

    def _keep(self, gpus: GpuIndexes, draining: Collection[str]) -> None:
        record = NodeRecord(dict(gpus), sorted(draining))
        self._folder.keep_node_record(record)  # raises on a full disk, so that no drain is in force without being saved
        self.drain(record.draining)
