"""Assembles, starts and stops everything of an agent except its connection to the control plane."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from agents.contract.assignments import Assignment
from agents.contract.logs import LogText, LogWanted
from agents.contract.paths import build_table
from agents.contract.reports import COPY, Answer, Copy, Inventory, UsageInterval
from agents.host import clocks
from agents.keeper.copies import NodeCopy
from agents.keeper.exits import JobExits
from agents.keeper.filler import Filler
from agents.keeper.journal import Journal
from agents.keeper.keeper import Keeper
from agents.keeper.ledger import CopyLedger
from agents.keeper.routing import GatewayRoutes
from agents.node import reporting
from agents.node.adoption import adopt_copy, end_stranger
from agents.node.copy_counters import CopyCounters
from agents.node.device_watch import DeviceWatch
from agents.node.node_record import RecordKeeper
from agents.node.parts import NodeParts as NodeParts
from agents.node.printed import read_printed
from agents.node.report_minute import CopyTotals, ReportMinute
from agents.node.reporting import ReportBody
from agents.node.state_folder import StateFolder
from agents.policy.health import HealthVerdict
from agents.profiling.copy import is_measured
from agents.profiling.seat import ProfilingSeat
from agents.runtime import Running
from agents.seams.device import DeviceError, GpuDevice

VERSION = "0.1.0"

ENERGY_SECONDS = 60.0  # between two saves of the energy counts; a crash loses only estimates

log = logging.getLogger(__name__)


class LocalNode:
    """The keeper, which starts and stops copies, and the device watch, which reads devices and turns knobs."""

    def __init__(
        self,
        folder: StateFolder,
        around: NodeParts,
        incarnation: int,
        workers: int = 4,
        clock: Callable[[], float] = clocks.seconds,
        date: Callable[[], datetime] = clocks.date,
    ) -> None:
        self._folder = folder
        self._around = around
        self._clock = clock
        self._energy_kept_at = clock()
        self._record = RecordKeeper(folder)
        self._assignment: Assignment | None = None
        self._filler = filler = Filler(
            around.templates,
            around.host,
            folder.control_key(),
            around.allow_list,
            around.runtime_kind,
            around.checkpoints,
        )
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = Journal(folder.path / "journal.jsonl")
        routes = GatewayRoutes(around.routes, clock)
        self.ledger = CopyLedger(journal, date)
        self.counters = CopyCounters(around.drivers.talk, filler, around.counters, self.ledger.news.set)
        self.keeper = Keeper(
            self.ledger,
            around.drivers,
            routes,
            filler,
            incarnation,
            around.host,
            clock,
            workers,
            JobExits(folder.path / "exits.json", self.counters.units),
        )
        self.watch = DeviceWatch(
            around.drivers,
            self.keeper,
            self.counters,
            self._record.gpus,
            self._record.keep_gpus,
            folder.health(),
            folder.energy(),
            clock,
            date,
        )
        self._record.drain = self.watch.drain
        self.watch.drain(self._record.draining)
        last_look = folder.last_seen()
        # A copy whose end no earlier agent recorded held its share until that agent's last line.
        found = self.keeper.recover(max(last_look, journal.last_written or last_look))
        self.strangers: tuple[Running, ...] = tuple(stray for stray in found if not is_measured(stray.copy))
        self.counters.take_over(copy.id for copy in self.keeper.copies())
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()

    def start(self) -> None:
        if holders := self._around.holders:
            self.watch.devices.find_unheld = holders.unheld
        self.watch.tick()
        self._threads = [
            threading.Thread(target=self.keeper.run, name="keeper", daemon=True),
            threading.Thread(target=self.watch.run, name="watch", daemon=True),
        ]
        if notices := self._around.notices:
            notices.look()  # the first report has them
            watched = (self._stopping, self.ledger.news.set)
            self._threads.append(threading.Thread(target=notices.watch, args=watched, name="notices", daemon=True))
        if holders:
            watched_by = (self._stopping, self._list_gpus)
            self._threads.append(threading.Thread(target=holders.watch, args=watched_by, name="holders", daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stops the threads. Copies keep running; if there are none, devices get their original settings back."""
        self._stopping.set()
        self.watch.stop()
        self.keeper.stop()
        for thread in self._threads:
            thread.join(timeout=30)
        empty = not self.keeper.copies()
        self._folder.keep_energy(self.watch.devices.energy)
        self.keeper.close()
        if empty:
            with contextlib.suppress(DeviceError):
                self._around.drivers.device.restore()
        self._around.drivers.device.close()
        self._around.drivers.runtime.close()

    def offer(self, assignment: Assignment) -> None:
        """Takes what the node shall run. Assigned copies in no journal are adopted first: they may have requests."""
        self._assignment = assignment
        for line in self.adopt():
            log.warning("a process that is in no journal: %s", line)
        self.watch.offer(assignment)
        self.keeper.offer(assignment)

    def set_contact(self, contact: bool) -> None:
        """Notes whether the control plane answers."""
        self.keeper.set_contact(contact)

    def drain(self, gpus: Collection[int] | None) -> tuple[str, ...]:
        """Empties these GPUs (None: all) and starts nothing there until `use`; returns their UUIDs."""
        chosen = self._uuids(gpus)
        self._record.keep_draining({*self._record.draining, *chosen})
        return chosen

    def use(self, gpus: Collection[int] | None) -> tuple[str, ...]:
        """Ends the draining of these GPUs (None: all); returns their UUIDs."""
        chosen = self._uuids(gpus)
        self._record.keep_draining(() if gpus is None else set(self._record.draining) - set(chosen))
        return chosen

    @property
    def draining(self) -> tuple[str, ...]:
        return self._record.draining

    @property
    def reclaim_at(self) -> datetime | None:
        """When the cloud takes the node back, as far as it is known here."""
        return self._around.notices.deadline if self._around.notices else None

    @property
    def drained(self) -> bool:
        """Returns whether who runs the node's cluster wants it empty."""
        return self._around.notices is not None and self._around.notices.drained

    @property
    def cluster_away(self) -> str:
        """Why the API server of the node's cluster says nothing; empty where it does, or where there is no cluster."""
        return self._around.notices.away if self._around.notices else ""

    def forget_indexes(self) -> None:
        """Numbers the devices again, but for those that copies run on: the node has joined again."""
        self.watch.devices.forget_indexes()

    def adopt(self, end: bool = False) -> list[str]:
        """Adopts every process that runs here and is in no journal, or ends it; returns a line for each."""
        lines = []
        for running in self.strangers:
            copy = end_stranger(running, self._clock()) if end else adopt_copy(running, self._assignment, self._clock())
            if isinstance(copy, NodeCopy):
                self.counters.take_over([copy.id])
                self.keeper.take_in(copy)
                lines.append(f"{running.copy}: {'is being ended' if end else 'adopted; it will be verified'}")
            else:
                lines.append(copy)
        known = {copy.id for copy in self.keeper.copies()}
        self.strangers = tuple(running for running in self.strangers if running.copy not in known)
        return lines

    def read_printed(self, wanted: LogWanted) -> LogText:
        """Returns what an instance has printed since the place in the request, or its last lines."""
        return read_printed(wanted, self.keeper.list_logged_copies(wanted.instance), self._around.drivers.runtime)

    def seat(self) -> ProfilingSeat:
        """Returns what a measurement on one of the GPUs needs."""
        return ProfilingSeat(self._around.drivers, self._filler, self._around.host, self._device, self._occupants)

    def _device(self, gpu: int) -> GpuDevice | None:
        return self.watch.devices.found.get(self.watch.indexes.get(gpu, ""))

    def _occupants(self, gpu: int) -> str:
        """Returns what runs on a GPU, or is assigned to it, or why it may not be used; empty: it is free."""
        uuid = self.watch.indexes.get(gpu, "")
        verdict = self.watch.devices.verdicts.get(uuid)
        if verdict is not None and verdict.fenced:
            return f"GPU {gpu} is fenced: {verdict.reason}"
        there = {copy.instance for copy in self.keeper.copies() if uuid in copy.devices}
        if self._assignment is not None:
            there |= {instance.id for instance in self._assignment.instances if gpu in instance.all_gpus}
        return f"on GPU {gpu}: {', '.join(sorted(there))}" if there else ""

    def inventory(self) -> Inventory:
        around = self._around
        admitted = around.allow_list.startable_by(around.runtime_kind)
        devices = self.watch.devices
        metadata = around.metadata.state() if around.metadata else None
        return reporting.inventory(devices.there, devices.unclear, list(around.templates), VERSION, admitted, metadata)

    def take_finished(self) -> tuple[ReportMinute, Mapping[str, CopyTotals]] | None:
        """Returns the minute before this one, once."""
        finished, self.watch.finished = self.watch.finished, None
        return finished

    def report_body(self, minute: ReportMinute, totals: Mapping[str, CopyTotals]) -> ReportBody:
        """Returns a report's content: that minute, and the node's present state."""
        watch, keeper, devices = self.watch, self.keeper, self.watch.devices
        index = {uuid: number for number, uuid in watch.indexes.items()}
        copies = [copy for copy in keeper.copies() if copy.gpu in index]
        accounts = [interval for copy in self.ledger.accounts() for interval in reporting.usage(copy, index)]
        unknown = HealthVerdict("unknown")
        return ReportBody(
            gpus=tuple(
                reporting.gpu_minute(
                    minute, number, uuid, devices.verdicts.get(uuid, unknown), devices.energy_mj(uuid), watch.knobs
                )
                for number, uuid in sorted(watch.indexes.items())
            ),
            instances=tuple(
                line if line.service else reporting.add_exits(line, keeper.exits(line.id), keeper.exit_code(line.id))
                for line in reporting.instance_minutes(minute, copies, index, totals, watch.knobs)
            ),
            # The oldest first; the rest follows once these are acknowledged.
            usage=tuple(accounts)[: reporting.MOST_USAGE],
            copies=tuple(
                reporting.report_copy(copy, index, self._around.host, keeper.in_force(copy), keeper.filler.paths(copy))
                for copy in copies
            ),
            paths=build_table(keeper.filler.paths(copy) for copy in copies if copy.served),
            held_back=tuple(
                reporting.held_back(held, keeper.exit_code(held.instance))
                for held in keeper.held[: reporting.MOST_OF_A_KIND]
            ),
            excursions=watch.power.excursions,
            repartition=watch.power.repartition,
            reclaim_at=self.reclaim_at,
            drained=self.drained,
        )

    def save_look(self) -> None:
        """Saves the time of this look, device health, and now and then energy counts."""
        self._folder.record_look(self.watch.devices.health)
        if self._clock() - self._energy_kept_at > ENERGY_SECONDS:
            self._energy_kept_at = self._clock()
            self._folder.keep_energy(self.watch.devices.energy)

    def acknowledge(self, usage: Iterable[UsageInterval], dropped: Collection[str]) -> None:
        """Notes that the control plane has stored this usage, except `dropped`: it is not sent again."""
        refused = {
            reporting.name_first_gpu_usage(name.removeprefix("usage ")) for name in dropped if name.startswith("usage ")
        }
        for interval in usage:  # of a copy on several GPUs the last one has the copy's own name
            if interval.id not in refused:
                copy, spell = reporting.copy_and_spell(interval.id)
                self.ledger.acknowledge(copy, spell, "closed" if interval.ended_at else "opened")

    def note_stored(self, copies: Collection[Copy], answer: Answer) -> None:
        """Notes that the control plane has answered a report with these copies."""
        if self._around.followers is not None:
            dropped = {dropped.what for dropped in answer.dropped}
            taken = [copy for copy in copies if COPY + copy.id not in dropped]
            self._around.followers.note_stored(taken, answer)

    def next_report_seconds(self, longest: float) -> float:
        """Returns the seconds until the next report is due."""
        followers = self._around.followers
        return followers.next_report_seconds(longest) if followers is not None else longest

    def current_minute(self) -> tuple[ReportMinute, Mapping[str, CopyTotals]]:
        return self.watch.minute, self.counters.totals

    def _list_gpus(self) -> Collection[str]:
        return self.watch.indexes.values()

    def _uuids(self, gpus: Collection[int] | None) -> tuple[str, ...]:
        indexes = self.watch.indexes
        unknown = [] if gpus is None else [gpu for gpu in gpus if gpu not in indexes]
        if unknown:
            raise ValueError(f"this node has no GPU {unknown[0]}; it has {sorted(indexes)}")
        return tuple(uuid for index, uuid in sorted(indexes.items()) if gpus is None or index in gpus)
