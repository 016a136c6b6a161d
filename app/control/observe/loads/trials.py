"""Counts the answers of copies on trial, from the first full minute of the trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agents.contract.assignments import AssignedInstance
from agents.contract.reports import InstanceMinute
from app.control.domain.latencies import add, count_within_at_best
from app.control.domain.readings import CopyTrial
from app.control.observe.loads.chance import exceeds_chance
from app.control.observe.loads.reports import ReportExcerpt

OVERLOAD_FACTOR = 1.02  # times the planned rate: misses of an instance that gets more prove nothing


@dataclass(slots=True)
class _TrialRecord:
    """The reports of an instance on trial."""

    first: datetime | None = None  # its first reported minute, which may include the copy that it replaced
    minutes: dict[datetime, tuple[InstanceMinute, float]] = field(default_factory=dict)  # with the seconds so far


class Trials:
    """The trials of the instances that were named last. Not safe for several threads."""

    def __init__(self) -> None:
        self._records: dict[str, _TrialRecord] = {}

    def take(self, report: ReportExcerpt) -> None:
        """Adds a node's report; a later report of the same minute includes the earlier ones."""
        if not self._records:
            return
        for instance in report.instances:
            record = self._records.get(instance.id)
            if record is None:
                continue
            record.first = record.first or report.minute
            if report.minute > record.first:
                seconds = min(60.0, (report.at - report.minute).total_seconds())
                record.minutes[report.minute] = (
                    instance,
                    max(seconds, record.minutes.get(report.minute, (instance, 0.0))[1]),
                )

    def of(self, wanted: Mapping[str, AssignedInstance]) -> dict[str, CopyTrial]:
        """Returns the results so far, and forgets other instances. A result that proves nothing is left out."""
        self._records = {id_: self._records.get(id_, _TrialRecord()) for id_ in wanted}
        found = {id_: _judge_trial(self._records[id_], instance) for id_, instance in wanted.items()}
        return {id_: trial for id_, trial in found.items() if trial}


def _judge_trial(record: _TrialRecord, instance: AssignedInstance) -> CopyTrial | None:
    """Returns the share in time; of a language model that of first tokens or that of the pace, whichever is smaller."""
    counts: list[int] = []
    requests = seconds = 0.0
    for minute, lasted in record.minutes.values():
        add(counts, minute.latency_counts)
        requests += minute.errors
        seconds += lasted
    requests += sum(counts)
    if requests <= 0 or seconds <= 0 or instance.slo_ms <= 0:
        return None
    inside, allowed = count_within_at_best(counts, instance.slo_ms) / requests, 1 - instance.percentile / 100
    paced = sum(minute.paced for minute, _ in record.minutes.values())
    if instance.tpot_ms and paced:
        inside = min(inside, 1 - sum(minute.pace_late for minute, _ in record.minutes.values()) / paced)
    if inside < 1 - allowed:
        is_sure = exceeds_chance(1 - inside, allowed, requests, seconds, instance.slo_ms)
        if not is_sure or requests / seconds > OVERLOAD_FACTOR * instance.rate_per_second:
            return None
    return CopyTrial(int(requests), 100 * inside)
