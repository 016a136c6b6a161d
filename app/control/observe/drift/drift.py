"""Profiles watched at work: what is heard of their instances, and the corrections that it calls for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from app.control.observe.drift.correct import ProfileCorrection, update_correction
from app.control.observe.drift.minutes import NodeMinutes, Observation, ShedSince, no_shedding
from app.control.observe.drift.predict import Prediction
from app.control.observe.drift.tuning import DriftTuning
from app.control.observe.loads.reports import ReportBatch

MOST_OBSERVATIONS = 5000  # of one profile; a larger fleet proves no more


class Drift:
    """Not for several threads at once."""

    def __init__(self, settings: DriftTuning | None = None) -> None:
        self.settings = settings or DriftTuning()
        self._predicted: Mapping[str, Prediction] = {}
        self._nodes: dict[str, NodeMinutes] = {}
        self._seen: dict[str, deque[Observation]] = {}
        self._known: dict[str, ProfileCorrection] = {}

    def restore(self, known: Iterable[ProfileCorrection]) -> None:
        """Begin with what an earlier leader knew."""
        self._known = {one.key: one for one in known}

    def expects(self, predicted: Mapping[str, Prediction]) -> None:
        """What stands from now on, and what profiles promise of it."""
        self._predicted = predicted

    def take(self, readings: ReportBatch, shed_since: ShedSince = no_shedding) -> None:
        """Add what was heard. `shed_since` names services that more was asked than was let in."""
        for heard in readings.reports:
            node = self._nodes.setdefault(heard.report.node, NodeMinutes())
            for one in node.next(heard.report, self._predicted, self.settings, shed_since):
                self._seen.setdefault(one.key, deque(maxlen=MOST_OBSERVATIONS)).append(one)

    def correct(self, now: datetime) -> list[ProfileCorrection]:
        """Profiles whose correction or alarm has changed: to be kept, and told of."""
        changed = []
        oldest = now - timedelta(seconds=self.settings.window_seconds)
        for key, seen in list(self._seen.items()):
            while seen and seen[0].at < oldest:
                seen.popleft()
            if not seen:
                del self._seen[key]
                continue
            before = self._known.get(key, ProfileCorrection(key))
            after = update_correction(replace(before, message=""), list(seen), now, self.settings)
            self._known[key] = after
            if (after.correction, after.alarm, after.late) != (before.correction, before.alarm, before.late):
                changed.append(after)
        return changed

    @property
    def known(self) -> Mapping[str, ProfileCorrection]:
        """By model/variant/gpuType."""
        return self._known
