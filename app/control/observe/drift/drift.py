"""Observes how instances perform against their profiles, and corrects the profiles."""

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
    """The observations and corrections of all profiles. Not safe for several threads."""

    def __init__(self, settings: DriftTuning | None = None) -> None:
        self.settings = settings or DriftTuning()
        self._predicted: Mapping[str, Prediction] = {}
        self._nodes: dict[str, NodeMinutes] = {}
        self._observations: dict[str, deque[Observation]] = {}
        self._known: dict[str, ProfileCorrection] = {}

    def restore(self, known: Iterable[ProfileCorrection]) -> None:
        """Starts with the corrections that an earlier leader stored."""
        self._known = {correction.key: correction for correction in known}

    def expects(self, predicted: Mapping[str, Prediction]) -> None:
        """Sets the predictions for the instances that run from now on."""
        self._predicted = predicted

    def take(self, readings: ReportBatch, shed_since: ShedSince = no_shedding) -> None:
        """Adds reports. `shed_since` names the services of which requests were rejected."""
        for received in readings.reports:
            node = self._nodes.setdefault(received.report.node, NodeMinutes())
            for observation in node.next(received.report, self._predicted, self.settings, shed_since):
                self._observations.setdefault(observation.key, deque(maxlen=MOST_OBSERVATIONS)).append(observation)

    def correct(self, now: datetime) -> list[ProfileCorrection]:
        """Returns the profiles whose correction or alarm has changed, to be stored and announced."""
        changed = []
        oldest = now - timedelta(seconds=self.settings.window_seconds)
        for key, observations in list(self._observations.items()):
            while observations and observations[0].at < oldest:
                observations.popleft()
            if not observations:
                del self._observations[key]
                continue
            before = self._known.get(key, ProfileCorrection(key))
            after = update_correction(replace(before, message=""), list(observations), now, self.settings)
            self._known[key] = after
            if (after.correction, after.alarm, after.late) != (before.correction, before.alarm, before.late):
                changed.append(after)
        return changed

    @property
    def known(self) -> Mapping[str, ProfileCorrection]:
        """The known corrections, by model/variant/gpuType."""
        return self._known
