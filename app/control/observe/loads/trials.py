"""How single copies answer while they are on trial: counted from the first minute that began under the trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import sqrt

from agents.contract import AssignedInstance, InstanceMinute
from app.control.domain.readings import CopyTrial
from app.control.observe.loads.latencies import add, within_at_best
from app.control.observe.loads.reports import ReportExcerpt

BURST_SLOS = 5.0  # misses come together: one chance of a burst in so many times the SLO
SURE = 2.5  # deviations
MORE = 1.02  # times what it was planned for: of an instance that is asked more, misses say nothing


@dataclass(slots=True)
class _TrialRecord:
    """What was said of one instance."""

    first: datetime | None = None  # the minute in which it was first heard: what it replaced may be in that
    minutes: dict[datetime, tuple[InstanceMinute, float]] = field(default_factory=dict)  # with the seconds so far


class Trials:
    """Of those that were asked for last. Not for several threads at once."""

    def __init__(self) -> None:
        self._heard: dict[str, _TrialRecord] = {}

    def take(self, word: ReportExcerpt) -> None:
        """Add what a node says; a minute's later word holds the earlier ones."""
        if not self._heard:
            return
        for one in word.instances:
            known = self._heard.get(one.id)
            if known is None:
                continue
            known.first = known.first or word.minute
            if word.minute > known.first:
                seconds = min(60.0, (word.at - word.minute).total_seconds())
                known.minutes[word.minute] = one, max(seconds, known.minutes.get(word.minute, (one, 0.0))[1])

    def of(self, wanted: Mapping[str, AssignedInstance]) -> dict[str, CopyTrial]:
        """What these have shown so far; others are forgotten. What is neither kept nor surely missed is left out."""
        self._heard = {id_: self._heard.get(id_, _TrialRecord()) for id_ in wanted}
        found = {id_: _judge_trial(self._heard[id_], one) for id_, one in wanted.items()}
        return {id_: trial for id_, trial in found.items() if trial}


def _judge_trial(heard: _TrialRecord, one: AssignedInstance) -> CopyTrial | None:
    counts: list[int] = []
    asked = seconds = 0.0
    for told, lasted in heard.minutes.values():
        add(counts, told.latency_counts)
        asked += told.errors
        seconds += lasted
    asked += sum(counts)
    if asked <= 0 or seconds <= 0 or one.slo_ms <= 0:
        return None
    inside, allowed = within_at_best(counts, one.slo_ms) / asked, 1 - one.percentile / 100
    if inside < 1 - allowed:
        chances = min(asked, 1000 * seconds / (BURST_SLOS * one.slo_ms))
        is_sure = 1 - inside > allowed + SURE * sqrt(allowed * (1 - allowed) / max(chances, 1.0))
        if not is_sure or asked / seconds > MORE * one.rate_per_second:
            return None
    return CopyTrial(int(asked), 100 * inside)
