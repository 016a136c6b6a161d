"""The GPUs of this machine as NVML knows them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from agents.devices.mps.program import PROGRAM
from agents.devices.nvml import originals
from agents.devices.nvml.binding import DEADLINE_SECONDS, REOPEN_SECONDS, Binding, NvmlSlot
from agents.devices.nvml.events import Events
from agents.devices.nvml.probing import probe_gpu
from agents.devices.nvml.reading import list_processes, read_gpu
from agents.devices.nvml.setting import SETTLE_SECONDS, GpuKnobs
from agents.devices.nvml.writer import DirectWriter, Writer
from agents.seams.device import Applied, DeviceError, GpuDevice, GpuProcess, GpuReading, XidEvent

log = logging.getLogger(__name__)


class NvmlDevice:
    """Opens NVML at once: DeviceError NO_DRIVER where there is none.

    `originals_file` keeps each GPU's settings from before its first change, even across a crash, so that `restore` of
    the next agent brings them back.
    """

    def __init__(
        self,
        originals_file: Path,
        writer: Writer | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
        reopen_seconds: float = REOPEN_SECONDS,
    ) -> None:
        self._binding = Binding(deadline_seconds, reopen_seconds)
        self._events = Events(self._binding)
        writer = writer or DirectWriter(self._binding)
        self._settings = GpuKnobs(self._binding, writer, originals.open_originals(originals_file), settle_seconds)
        self._gpus: dict[str, GpuDevice] = {}

    def gpus(self) -> tuple[GpuDevice, ...]:
        self._binding.enumerate()
        answers = self._binding.together(self._probe)
        for uuid, answer in answers.items():
            if isinstance(answer, DeviceError):
                log.warning("%s", answer)
            else:
                self._gpus[uuid] = answer
        present = [answer for answer in answers.values() if isinstance(answer, GpuDevice)]
        return tuple(sorted(present, key=lambda gpu: gpu.index))

    def read(self, uuid: str) -> GpuReading:
        abilities = self._gpu(uuid).abilities
        answer: GpuReading = self._binding.call(uuid, "read it", read_gpu, abilities)
        return answer

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        answer: tuple[GpuProcess, ...] = self._binding.call(uuid, "list its processes", list_processes)
        return answer

    def lock_clock(self, uuid: str, mhz: int | None) -> Applied:
        gpu = self._gpu(uuid)
        return self._settings.free_clock(gpu) if mhz is None else self._settings.lock_clock(gpu, mhz)

    def cap_power(self, uuid: str, watts: float | None) -> Applied:
        return self._settings.cap_power(self._gpu(uuid), watts)

    def exclusive(self, uuid: str, wanted: bool) -> Applied:
        return self._settings.exclusive(self._gpu(uuid), wanted)

    def events(self, seconds: float) -> tuple[XidEvent, ...]:
        return self._events.wait(seconds)

    def restore(self) -> None:
        self._settings.restore()

    def close(self) -> None:
        self._events.close()
        self._binding.close()

    def _gpu(self, uuid: str) -> GpuDevice:
        """Returns the GPU as last enumerated."""
        if uuid not in self._gpus:
            self.gpus()
        slot = self._binding.slot(uuid)
        if uuid not in self._gpus:  # it has a name and reported nothing else
            self._gpus[uuid] = self._binding.call(uuid, "probe it", lambda handle: self._probe(slot))
        return self._gpus[uuid]

    def _probe(self, slot: NvmlSlot) -> GpuDevice:
        return probe_gpu(slot, shutil.which(PROGRAM) is not None)
