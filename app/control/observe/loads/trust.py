"""Drops reports of instances that a node was never assigned; former instances are accepted for a while.

A node that reports instances it was never assigned is faulty or hostile: it must not influence the load of another
tenant's service or the progress of another tenant's job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.reports import InstanceMinute
from app.control.observe.loads.reports import ReportExcerpt
from app.store.fleet.load_news import AssignedBody

FORMER_INTERVAL = timedelta(minutes=10)  # that a former instance is accepted: its last minute may be reported late

Owner: TypeAlias = tuple[str, str, str]  # tenant, service, job

log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(Assignment)


class TrustedInstances:
    """The instances that each node was assigned, up to `version`."""

    def __init__(self) -> None:
        self.version = 0
        self._assigned: dict[str, Mapping[str, Owner]] = {}
        self._former: dict[str, Mapping[str, tuple[Owner, datetime]]] = {}
        self._strangers: dict[str, int] = {}

    def take(self, assignments: Iterable[AssignedBody], now: datetime) -> None:
        """Adds assignments that were written since: node, version, body."""
        for node, version, body in assignments:
            assigned = _decoder.decode(body)
            wanted = {line.id: _owner(line) for line in (*assigned.instances, *assigned.swapped)}
            oldest = now - FORMER_INTERVAL
            former = {id_: entry for id_, entry in self._former.get(node, {}).items() if entry[1] > oldest}
            former |= {id_: (owner, now) for id_, owner in self._assigned.get(node, {}).items() if id_ not in wanted}
            self._assigned[node], self._former[node] = wanted, former
            self.version = max(self.version, version)

    def filter(self, report: ReportExcerpt) -> ReportExcerpt:
        """Returns the report without the instances that its node was not assigned."""
        known = {id_: owner for id_, (owner, _) in self._former.get(report.node, {}).items()}
        known |= self._assigned.get(report.node, {})
        instances = tuple(instance for instance in report.instances if known.get(instance.id) == _owner(instance))
        strangers = len(report.instances) - len(instances)
        if strangers != self._strangers.get(report.node, 0):
            self._strangers[report.node] = strangers
            log.warning("not_believed", extra={"node": report.node, "instances": strangers})
        held_back = tuple(held for held in report.held_back if held.instance in known)
        if not strangers and len(held_back) == len(report.held_back):
            return report
        return msgspec.structs.replace(report, instances=instances, held_back=held_back)


def _owner(instance: AssignedInstance | InstanceMinute) -> Owner:
    return instance.tenant, instance.service, instance.job
