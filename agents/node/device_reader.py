"""Reads every GPU and its MPS daemon, judges their health, and counts their energy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import NodeDrivers
from agents.node.gpu_indexes import GpuIndexes, settle_indexes
from agents.node.report_minute import ReportMinute
from agents.policy import health, power
from agents.seams.device import DeviceError, GpuDevice, GpuReading, MpsState, Trouble

ENUMERATE_SECONDS = 10.0
MPS_SECONDS = 10.0
PATIENCE_ANSWERS = 3  # doubtful ones in a row, before an MPS daemon counts as down

log = logging.getLogger(__name__)


class DeviceReader:
    """The newest reading, health and energy of each GPU by UUID; a GPU that does not answer hides no other."""

    def __init__(
        self,
        drivers: NodeDrivers,
        known: GpuIndexes,
        keep_known: Callable[[GpuIndexes], None],
        states: Mapping[str, health.HealthState],
        energy: Mapping[str, power.Energy],
    ) -> None:
        self.find_unheld: Callable[[], Mapping[str, str]] = dict  # GPUs that others may get, by UUID, and why
        self._drivers = drivers
        self._keep_known = keep_known
        self._enumerated_at = float("-inf")
        self._is_known = True  # False: the indexes are settled as if nothing were known
        self._mps: dict[str, MpsState] = {}
        self._mps_at = float("-inf")
        self._doubts: dict[str, int] = {}
        self.indexed = self._saved = known
        self.unclear = ""  # why a device that is there has no index
        self.found: dict[str, GpuDevice] = {}  # every device ever enumerated, in its last state
        self.present: set[str] = set()
        self.health = dict(states)  # faults that a person must mend outlive the agent
        self.energy = dict(energy)  # of each GPU since an agent first counted
        self.samples: dict[str, power.Samples] = {}
        self.verdicts: dict[str, health.HealthVerdict] = {}
        self.readings: dict[str, GpuReading] = {}
        self.xids: dict[str, int] = {}  # the last one of each GPU

    def energy_mj(self, gpu: str) -> int:
        """Returns what the GPU has drawn since an agent first counted."""
        return self.energy.get(gpu, power.Energy()).total_mj

    @property
    def indexes(self) -> dict[int, str]:
        """The UUID that each index means."""
        return {index: gpu.uuid for index, gpu in self.indexed.items()}

    @property
    def there(self) -> dict[int, GpuDevice]:
        """The devices that are there, by index."""
        return {index: self.found[uuid] for index, uuid in self.indexes.items() if uuid in self.present}

    def forget_indexes(self) -> None:
        """Numbers the devices again at the next look, but for those that copies run on."""
        self._is_known, self._enumerated_at = False, float("-inf")
        self._saved = {}  # as what is on disk was forgotten, too

    def enumerate(self, find_held: Callable[[], Mapping[int, str]], now: float) -> None:
        """Lists the devices every few seconds, and settles which index means which; copies run on those found held."""
        if now - self._enumerated_at < ENUMERATE_SECONDS:
            return
        self._enumerated_at = now
        try:
            gpus = self._drivers.device.gpus()
        except DeviceError as error:
            log.warning("the devices cannot be listed: %s", error)
            if error.trouble is Trouble.NO_DRIVER:
                self.present = set()
            return  # any other error says nothing about a single device
        self.found.update({gpu.uuid: gpu for gpu in gpus})
        self.present = {gpu.uuid for gpu in gpus}
        settled, self._is_known = settle_indexes(self.indexed if self._is_known else {}, gpus, find_held()), True
        if settled.waits:
            self._enumerated_at = float("-inf")
        if settled.message and settled.message != self.unclear:
            log.warning("%s", settled.message)
        self.unclear = settled.message
        if settled.gpus != self.indexed:
            for index, gpu in settled.gpus.items():
                if gpu != self.indexed.get(index):
                    log.warning("GPU %d is now %s at %s", index, gpu.uuid, gpu.place or "no address")
            self.indexed = settled.gpus
        self._save_indexes()

    def _save_indexes(self) -> None:
        """Saves the indexes; on a full disk they are in force, and saved at a later look."""
        if self.indexed == self._saved:
            return
        try:
            self._keep_known(self.indexed)
            self._saved = self.indexed
        except OSError as error:
            log.warning("the indexes of the GPUs cannot be saved: %s", error)

    def read(
        self, copies: Collection[NodeCopy], recycled: Collection[str], minute: ReportMinute, now: float
    ) -> dict[str, str]:
        """Reads and judges every GPU; returns those whose MPS daemon must be restarted, with the reasons."""
        xids = self._read_events()
        if now - self._mps_at >= MPS_SECONDS:
            self._mps_at = now
            # A recycled GPU has no copies, but its daemon must be asked, too: otherwise it would count as healthy.
            # One that ended before this agent began, as at a reboot, says nothing of a daemon: there need not be any.
            held = [copy for copy in copies if copy.running and copy.evidence != "restart"]
            probed = {copy.gpu for copy in held if not copy.gpus} | set(recycled)
            self._mps = {gpu: self._mps_state(gpu) for gpu in sorted(probed)}
        broken: dict[str, str] = {}
        for uuid in self.indexes.values():
            reading, trouble = None, None
            try:
                reading = self._drivers.device.read(uuid)
                self._take(uuid, reading, minute, now)
            except DeviceError as error:
                trouble = error.trouble
                self.readings.pop(uuid, None)
                if trouble is Trouble.LOST:
                    self._enumerated_at = float("-inf")
            self._judge(uuid, reading, trouble, xids.get(uuid, ()), now)
            state = self._mps.get(uuid)
            if state in (MpsState.FAULT, MpsState.DOWN) and uuid not in recycled:
                broken[uuid] = f"mps_{state}"
        return broken

    def _read_events(self) -> dict[str, tuple[int, ...]]:
        xids: dict[str, tuple[int, ...]] = {}
        try:
            for event in self._drivers.device.events(0):
                xids[event.uuid] = (*xids.get(event.uuid, ()), event.xid)
                self.xids[event.uuid] = event.xid
        except DeviceError as error:
            if error.trouble is not Trouble.NOT_SUPPORTED:
                log.warning("device events cannot be read: %s", error)
        return xids

    def _take(self, uuid: str, reading: GpuReading, minute: ReportMinute, now: float) -> None:
        self.readings[uuid] = reading
        minute.read(uuid, reading)
        before = self.energy.get(uuid, power.Energy())
        self.samples.setdefault(uuid, power.Samples()).read(now, reading.power_w, reading.energy_mj)
        self.energy[uuid] = power.add_reading(before, reading.energy_mj, reading.power_w, now)

    def _judge(
        self, uuid: str, reading: GpuReading | None, trouble: Trouble | None, xids: tuple[int, ...], now: float
    ) -> None:
        present = uuid in self.present and trouble is not Trouble.LOST
        observed = health.GpuObservation(uuid, present, reading, trouble, xids, self._mps.get(uuid))
        state = self.health.get(uuid) or health.HealthState(uuid)
        self.health[uuid] = health.observe(state, observed, now)
        verdict = health.verdict(self.health[uuid], now)
        if not verdict.fenced and (why := self.find_unheld().get(uuid)):
            verdict = health.HealthVerdict("degraded", "not_held", fenced=True, message=why)
        before = self.verdicts.get(uuid)
        if before is None or before.reason != verdict.reason:
            level = logging.INFO if verdict.health == "ok" else logging.WARNING
            log.log(level, "GPU %s is %s", uuid, ": ".join(filter(None, [verdict.health, verdict.message])))
        self.verdicts[uuid] = verdict

    def _mps_state(self, gpu: str) -> MpsState:
        """Returns the daemon's state. One doubtful answer must not end what it serves; several in a row do."""
        try:
            state = self._drivers.mps.state(gpu)
            self._doubts.pop(gpu, None)
            return state
        except DeviceError as error:
            if error.trouble is Trouble.FAULT:
                return MpsState.FAULT
            self._doubts[gpu] = self._doubts.get(gpu, 0) + 1
            log.warning("the MPS daemon of GPU %s does not answer: %s", gpu, error)
            sure = error.trouble is Trouble.DOWN or self._doubts[gpu] >= PATIENCE_ANSWERS
            return MpsState.DOWN if sure else self._mps.get(gpu, MpsState.ACTIVE)
