"""Everything that an agent is, but for its talk with the control plane: put together, started and stopped."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from agents.contract import Assignment, Inventory
from agents.host import clocks
from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import NodeDrivers
from agents.keeper.filler import Filler
from agents.keeper.journal import Journal
from agents.keeper.keeper import Keeper
from agents.keeper.ledger import CopyLedger
from agents.keeper.routing import GatewayRoutes
from agents.node import reporting
from agents.node.adoption import adopt_copy, end_stranger
from agents.node.copy_counters import CopyCounters, GatewayCounters
from agents.node.device_watch import DeviceWatch
from agents.node.report_minute import CopyTotals, ReportMinute
from agents.node.reporting import ReportBody
from agents.node.state_folder import NodeRecord, StateFolder
from agents.policy.health import HealthVerdict
from agents.runtime import Running
from agents.seams.device import DeviceError
from agents.seams.routes import Routes
from agents.templates.reading import Template

VERSION = "0.1.0"

ENERGY_SECONDS = 60.0  # a counter that was not kept is read again: only estimates can be lost

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What a node is built on."""

    drivers: NodeDrivers
    routes: Routes
    templates: Mapping[str, Template]
    counters: GatewayCounters | None = None  # of the gateway; None: the copies count themselves
    host: str = "127.0.0.1"  # where the gateway reaches the copies


class LocalNode:
    """The keeper, which brings copies up and down, and the watch, which reads devices and turns knobs."""

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
        self._known = folder.known()
        self._assignment: Assignment | None = None
        filler = Filler(around.templates, around.host)
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = Journal(folder.path / "journal.jsonl")
        routes = GatewayRoutes(around.routes)
        self.ledger = CopyLedger(journal, date)
        self.keeper = Keeper(self.ledger, around.drivers, routes, filler, incarnation, around.host, clock, workers)
        self.census = CopyCounters(around.drivers.talk, filler, around.counters)
        self.watch = DeviceWatch(
            around.drivers,
            self.keeper,
            self.census,
            self._known.gpus,
            self._keep_gpus,
            folder.health(),
            folder.energy(),
            clock,
            date,
        )
        self.watch.drain(self._known.draining)
        looked = folder.last_seen()
        # What was not recorded to have ended by the last line of the agent before held its share until then.
        self.strangers: tuple[Running, ...] = self.keeper.recover(max(looked, journal.last_written or looked))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self.watch.tick()
        self._threads = [
            threading.Thread(target=self.keeper.run, name="keeper", daemon=True),
            threading.Thread(target=self.watch.run, name="watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """What runs goes on running. Devices on which nothing runs get their own settings back."""
        self.watch.stop()
        self.keeper.stop()
        for thread in self._threads:
            thread.join(timeout=30)
        empty = not self.keeper.copies()
        self._folder.keep_energy(self.watch.energy)
        self.keeper.close()
        if empty:
            with contextlib.suppress(DeviceError):
                self._around.drivers.device.restore()
        self._around.drivers.device.close()

    def offer(self, assignment: Assignment) -> None:
        """What the node shall run. What runs for it already and is in no journal is taken in: it may have requests."""
        self._assignment = assignment
        for line in self.adopt():
            log.warning("in no journal: %s", line)
        self.watch.offer(assignment)
        self.keeper.offer(assignment)

    def set_contact(self, contact: bool) -> None:
        """Whether the control plane answers."""
        self.keeper.set_contact(contact)

    def drain(self, gpus: Collection[int] | None) -> tuple[str, ...]:
        """Empty these GPUs, or all with None, and start nothing there until they are to be used again."""
        chosen = self._uuids(gpus)
        self._keep_draining({*self._known.draining, *chosen})
        return chosen

    def use(self, gpus: Collection[int] | None) -> tuple[str, ...]:
        """Use GPUs again that were drained."""
        chosen = self._uuids(gpus)
        self._keep_draining(set(self._known.draining) - set(chosen))
        return chosen

    @property
    def draining(self) -> tuple[str, ...]:
        return tuple(self._known.draining)

    def adopt(self, end: bool = False) -> list[str]:
        """Take in every copy that runs here and is in no journal, or bring it to its end; a line for each."""
        said = []
        for running in self.strangers:
            copy = end_stranger(running, self._clock()) if end else adopt_copy(running, self._assignment, self._clock())
            if isinstance(copy, NodeCopy):
                self.keeper.take_in(copy)
                said.append(f"{running.copy}: {'brought to its end' if end else 'taken in, to be verified'}")
            else:
                said.append(copy)
        known = {copy.id for copy in self.keeper.copies()}
        self.strangers = tuple(running for running in self.strangers if running.copy not in known)
        return said

    def inventory(self) -> Inventory:
        return reporting.inventory(self.watch.indexes, self.watch.found, list(self._around.templates), VERSION)

    def finished(self) -> tuple[ReportMinute, Mapping[str, CopyTotals]] | None:
        """The minute before this one, once."""
        finished, self.watch.finished = self.watch.finished, None
        return finished

    def body(self, minute: ReportMinute, totals: Mapping[str, CopyTotals]) -> ReportBody:
        """What a report says of that minute, and of how things are now."""
        watch, keeper = self.watch, self.keeper
        index = {uuid: number for number, uuid in watch.indexes.items()}
        copies = [copy for copy in keeper.copies() if copy.gpu in index]
        accounts = [reporting.usage(copy, index[copy.gpu]) for copy in self.ledger.accounts() if copy.gpu in index]
        unknown = HealthVerdict("unknown")
        return ReportBody(
            gpus=tuple(
                reporting.gpu_minute(
                    minute, number, uuid, watch.verdicts.get(uuid, unknown), watch.energy_mj(uuid), watch.knobs
                )
                for number, uuid in sorted(watch.indexes.items())
            ),
            instances=reporting.instance_minutes(minute, copies, index, totals, watch.knobs),
            # The oldest first: what is left is said once these are acknowledged.
            usage=tuple(interval for interval in accounts if interval is not None)[: reporting.MOST_OF_A_KIND],
            copies=tuple(
                reporting.reported_copy(copy, index[copy.gpu], self._around.host, keeper.in_force(copy))
                for copy in copies
            ),
            held_back=tuple(reporting.held_back(held) for held in keeper.held[: reporting.MOST_OF_A_KIND]),
            excursions=watch.excursions,
            repartition=watch.repartition,
        )

    def looked(self) -> None:
        """Keep that we have looked, and what outlives us of what we saw."""
        self._folder.looked(self.watch.health)
        if self._clock() - self._energy_kept_at > ENERGY_SECONDS:
            self._energy_kept_at = self._clock()
            self._folder.keep_energy(self.watch.energy)

    def acknowledge(self, body: ReportBody, dropped: Collection[str]) -> None:
        """A report was stored: its usage need not be said again."""
        for interval in body.usage:
            if f"usage {interval.id}" not in dropped:
                self.ledger.acknowledge(interval.id, "closed" if interval.ended_at else "opened")

    def now(self) -> tuple[ReportMinute, Mapping[str, CopyTotals]]:
        return self.watch.minute, self.census.totals

    def _uuids(self, gpus: Collection[int] | None) -> tuple[str, ...]:
        indexes = self.watch.indexes
        unknown = [] if gpus is None else [gpu for gpu in gpus if gpu not in indexes]
        if unknown:
            raise ValueError(f"there is no GPU {unknown[0]} on this node; it has {sorted(indexes)}")
        return tuple(uuid for index, uuid in sorted(indexes.items()) if gpus is None or index in gpus)

    def _keep_draining(self, draining: Collection[str]) -> None:
        known = NodeRecord(self._known.gpus, sorted(draining))
        self._folder.keep_known(known)  # on a full disk it raises, and nothing is drained that a restart would not know
        self._known = known
        self.watch.drain(self._known.draining)

    def _keep_gpus(self, indexes: Mapping[int, str]) -> None:
        self._known = NodeRecord(dict(indexes), self._known.draining)
        self._folder.keep_known(self._known)
