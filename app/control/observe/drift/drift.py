"""Observes how instances perform against their profiles, and corrects the profiles."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

from app.control.observe.drift.beliefs import Places
from app.control.observe.drift.correct import ProfileCorrection, ProfileEvidence, update_correction
from app.control.observe.drift.minutes import NodeMinutes, Observation, ShedSince, no_shedding
from app.control.observe.drift.predict import Prediction
from app.control.observe.drift.tuning import DriftTuning
from app.control.observe.loads.reports import ReportBatch
from solvers.planning.measured import MeasuredInstance

TUNING = DriftTuning()
MOST_OBSERVATIONS = 5000  # of one profile; a larger fleet proves no more

CorrectionLaw: TypeAlias = Callable[[ProfileCorrection, ProfileEvidence, datetime, DriftTuning], ProfileCorrection]


class Drift:
    """The observations and corrections of all profiles. Not safe for several threads."""

    def __init__(self, law: CorrectionLaw = update_correction) -> None:
        self._law = law
        self._predicted: Mapping[str, Prediction] = {}
        self._places: Mapping[str, Places] = {}
        self._nodes: dict[str, NodeMinutes] = {}
        self._observations: dict[str, deque[Observation]] = {}
        self._fresh: dict[str, deque[Observation]] = {}
        self._known: dict[str, ProfileCorrection] = {}
        self._stored_at: dict[str, datetime] = {}
        self._measured: dict[str, MeasuredInstance] = {}

    def restore(self, known: Iterable[ProfileCorrection]) -> None:
        """Starts with the corrections that an earlier leader stored."""
        self._known = {correction.key: correction for correction in known}

    def expects(self, predicted: Mapping[str, Prediction], places: Mapping[str, Places]) -> None:
        """Sets the predictions for the instances that run from now on, and where their profiles have points."""
        self._predicted, self._places = predicted, places
        self._measured = {name: found for name, found in self._measured.items() if name in predicted}

    def take(self, readings: ReportBatch, shed_since: ShedSince = no_shedding) -> None:
        """Adds reports. `shed_since` names the services of which requests were rejected."""
        for received in readings.reports:
            node = self._nodes.setdefault(received.report.node, NodeMinutes())
            for observation in node.next(received.report, self._predicted, TUNING, shed_since):
                self._observations.setdefault(observation.key, deque(maxlen=MOST_OBSERVATIONS)).append(observation)
                self._fresh.setdefault(observation.key, deque(maxlen=MOST_OBSERVATIONS)).append(observation)
                if observation.latency_ms:
                    found = MeasuredInstance(observation.at, observation.batch, observation.latency_ms)
                    self._measured[observation.instance] = found

    def correct(self, now: datetime) -> list[ProfileCorrection]:
        """Returns the profiles that have to be stored: a correction or an alarm has changed, or much was learned.

        A correction that has just changed has a message.
        """
        changed = []
        oldest = now - timedelta(seconds=TUNING.window_seconds)
        fresh, self._fresh = self._fresh, {}
        for key, observations in list(self._observations.items()):
            while observations and observations[0].at < oldest:
                observations.popleft()
            if not observations:
                del self._observations[key]
                continue
            before = self._known.get(key, ProfileCorrection(key))
            evidence = ProfileEvidence(list(observations), list(fresh.get(key, ())), self._places.get(key, {}))
            after = self._law(replace(before, message=""), evidence, now, TUNING)
            self._known[key] = after
            is_new = (after.correction, after.alarm, after.late) != (before.correction, before.alarm, before.late)
            if is_new or (after.regions != before.regions and self._is_store_due(key, now)):
                self._stored_at[key] = now
                changed.append(after)
        return changed

    def _is_store_due(self, key: str, now: datetime) -> bool:
        stored_at = self._stored_at.setdefault(key, now)
        return (now - stored_at).total_seconds() >= TUNING.store_seconds

    @property
    def known(self) -> Mapping[str, ProfileCorrection]:
        """The known corrections, by model/variant/gpuType."""
        return self._known

    @property
    def measured(self) -> Mapping[str, MeasuredInstance]:
        """The last minute of each running instance that went as planned and had enough answers."""
        return dict(self._measured)
