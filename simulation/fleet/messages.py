"""Carries messages between a simulated fleet and the store: assignments, reports, and faults on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import msgspec

from agents.contract.assignments import Assignment
from agents.contract.fields import REPORT_SECONDS
from agents.contract.reports import Report
from app.nodes.intake import Intake
from app.store.database.database import Database
from app.store.fleet import assignments
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.node import LightNode
from simulation.fleet.node_reports import Speaker

SOONEST_SECONDS = 1.0  # between two reports of a node
BATCH_REPORTS = 100
RETENTION = timedelta(days=14)

How = Literal["as usual", "silent", "lost", "doubled", "late"]
LATE_SECONDS = 45.0


@dataclass(slots=True)
class NodeLine:
    """A node's link to the control plane."""

    node: LightNode
    speaker: Speaker
    due: float
    last: float = float("-inf")
    how: How = "as usual"  # silent: neither receives nor sends; the others affect reports alone


class Post:
    """Delivers by the fleet's clock. `how` sets the fault of a node's link at any time."""

    def __init__(self, fleet: SimulatedFleet, database: Database) -> None:
        self.fleet = fleet
        self.database = database
        self.intake = Intake(database, RETENTION)
        self.lines = {
            name: NodeLine(
                node, node.open_speaker(), fleet.clock.seconds + REPORT_SECONDS * place / max(1, len(fleet.nodes))
            )
            for place, (name, node) in enumerate(sorted(fleet.nodes.items()))
        }
        self.delivered = 0  # accepted assignments
        self.is_behind = True  # a node is to get an assignment that others have
        self._version = 0
        self._declared = frozenset(self.lines)
        self._late: list[tuple[float, Report]] = []

    def deliver(self) -> int:
        """Delivers every assignment newer than the last, and returns how many there were."""
        self.is_behind = False
        self._follow()
        listening = [name for name in self._declared if self.lines[name].how != "silent"]
        found = self.database.read(lambda connection: assignments.newer_than(connection, self._version, listening))
        count = 0
        for name, version, body in found:
            self._version = max(self._version, version)
            if name in self._declared and body is not None:
                self.lines[name].node.offer(msgspec.json.decode(body, type=Assignment))
                count += 1
        self.delivered += count
        return count

    def collect(self) -> int:
        """Stores the reports that are due, and returns how many."""
        now = self.fleet.clock.seconds
        sent: list[Report] = []
        for name, line in self.lines.items():
            if name not in self._declared:
                continue
            if line.how == "silent" or not self._is_due(line, now):
                continue
            line.due, line.last = now + REPORT_SECONDS, now
            reports = line.speaker.reports()
            match line.how:
                case "lost":
                    continue
                case "late":
                    self._late += [(now + LATE_SECONDS, report) for report in reports]
                case "doubled":
                    sent += [*reports, *reports]
                case _:
                    sent += reports
        sent += [report for due, report in self._late if due <= now]
        self._late = [(due, report) for due, report in self._late if due > now]
        for at in range(0, len(sent), BATCH_REPORTS):
            self._store(sent[at : at + BATCH_REPORTS])
        return len(sent)

    def silence(self, nodes: Iterable[str], how: How = "silent") -> None:
        for name in nodes:
            self.lines[name].how = how
            self.lines[name].node.contact = how != "silent"
            if how != "silent":  # it asks for its assignment as soon as it can
                self._version = min(self._version, self.lines[name].node.version)
                self.is_behind = True

    def connect(self, name: str) -> None:
        """Gives a new machine its link; what was assigned to one that had its name before is not for it."""
        node = self.fleet.nodes[name]
        self.lines[name] = NodeLine(node, Speaker(node), self.fleet.clock.seconds)
        self._declared |= {name}

    def disconnect(self, name: str) -> None:
        """Ends the link of a machine that is gone."""
        self._declared -= {name}

    def _follow(self) -> None:
        """Cuts off deleted nodes, as their tokens are revoked; a node declared again asks for its assignment."""
        declared = frozenset(self.lines.keys() & self.fleet.nodes.keys())
        for name in declared - self._declared:
            self._version = min(self._version, self.lines[name].node.version)
        self._declared = declared

    def _is_due(self, line: NodeLine, now: float) -> bool:
        return now >= line.due or (line.node.news and now >= line.last + SOONEST_SECONDS)

    def _store(self, reports: list[Report]) -> None:
        raws = [msgspec.json.encode(report) for report in reports]
        answers = self.intake.keep(reports, raws)
        for report, answer in zip(reports, answers, strict=True):
            speaker = self.lines[report.node].speaker
            speaker.note_stored(report, [drop.what for drop in answer.dropped if drop.reason in ("future", "later")])
            speaker.start_above(answer.incarnation)
