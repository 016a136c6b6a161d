"""Chooses which models to measure beside each other next: the meeting after which all others are foreseen best.

slowdown = 1 + sensitivity x sum of the neighbours' pressures, linear around what is known so far. Pressures of a model
at different shares are alike; how far the rule itself is off counts as noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from solvers.interference.candidate import Floats
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation
from solvers.interference.scalars import pressure_and_sensitivity

PRIOR = 0.5  # of a pressure and of a sensitivity
PRIOR_DEVIATION = 0.4
ALIKE_DOUBLINGS = 2.0  # of the share, over which a model's pressures are alike
LEAST_NOISE = 0.02  # of a slowdown
LEAST_VALUE = 0.05  # around which the rule is made linear: at 0 nothing could be learned of the other factor
DIGITS = 9  # to which gains are compared, so that rounding decides nothing


@dataclass(frozen=True, slots=True, order=True)
class Guest:
    """One copy in a meeting."""

    model: str
    sm_percent: int
    batch: int = 1


@dataclass(frozen=True, slots=True, order=True)
class Meeting:
    """Copies on one GPU at once."""

    guests: tuple[Guest, ...]

    @property
    def runs(self) -> list[SharedRun]:
        """Returns what is observed: each guest beside the others."""
        return [
            SharedRun(
                guest.model,
                guest.sm_percent,
                tuple(Neighbour(o.model, o.sm_percent) for number, o in enumerate(self.guests) if number != place),
            )
            for place, guest in enumerate(self.guests)
        ]


def next_meeting(
    meetings: Sequence[Meeting],
    held: Sequence[Meeting],
    observations: Sequence[SlowdownObservation],
    accuracy: float,
    most: int,
) -> Meeting | None:
    """Returns the meeting to measure next; None once slowdowns are foreseen to `accuracy`, or after `most`.

    `observations` are those of the meetings `held`, and may hold others of the same models.
    """
    waiting = [meeting for meeting in meetings if meeting not in set(held)]
    if not waiting or len(held) >= most:
        return None
    rule = _Rule.of(meetings, observations)
    unmet = _unmet(waiting, held)
    is_foreseen = sqrt(2.0 / pi) * float(np.sqrt(rule.variances).mean()) <= accuracy
    if is_foreseen and not unmet:
        return None
    known = Counter(guest for meeting in held for guest in meeting.guests)

    def worth(meeting: Meeting) -> tuple[float, int]:
        gain = rule.gain(meeting.runs) / len(meeting.guests)  # more copies take longer
        return round(gain, DIGITS), -sum(known[guest] for guest in meeting.guests)

    return max(unmet or waiting, key=worth)  # the first of equals


def _unmet(waiting: Sequence[Meeting], held: Sequence[Meeting]) -> list[Meeting]:
    """Returns pairs of models that have not met; once all have, meetings with a share that has not pressed on any.

    Two models that leave each other alone at small shares would else count as known at large ones too.
    """
    met = {_company(meeting) for meeting in held}
    if pairs := [meeting for meeting in waiting if len(meeting.guests) == 2 and _company(meeting) not in met]:
        return pairs
    pressed = {(guest.model, guest.sm_percent) for meeting in held for guest in meeting.guests}
    return [m for m in waiting if any((guest.model, guest.sm_percent) not in pressed for guest in m.guests)]


def _company(meeting: Meeting) -> tuple[str, ...]:
    return tuple(sorted(guest.model for guest in meeting.guests))


@dataclass(frozen=True)
class _Rule:
    """The rule of slowdowns around the present estimates, and how unsure its parameters are."""

    models: list[str]
    sources: list[tuple[str, int]]
    feels: Floats
    presses: Floats
    covariance: Floats
    noise: float
    everything: Floats  # slopes of all that could be observed

    @classmethod
    def of(cls, meetings: Sequence[Meeting], observations: Sequence[SlowdownObservation]) -> _Rule:
        runs = [run for meeting in meetings for run in meeting.runs]
        seen = [each.run for each in observations]
        models = sorted({model for run in (*runs, *seen) for model in run.models})
        sources = sorted({(n.model, n.sm_percent) for run in (*runs, *seen) for n in run.neighbours})
        feels, presses = np.full(len(models), PRIOR), np.full(len(sources), PRIOR)
        found = pressure_and_sensitivity(observations) if observations else {}
        for at, model in enumerate(models):
            scalars = found.get(model)
            if scalars and scalars.sensitivity:
                feels[at] = max(LEAST_VALUE, scalars.sensitivity.mean)
        for at, (model, percent) in enumerate(sources):
            pressures = found[model].pressure if model in found else {}
            if pressures:
                known = sorted((share, value.mean) for share, value in pressures.items())
                at_share = np.interp(percent, [share for share, _ in known], [value for _, value in known])
                presses[at] = max(LEAST_VALUE, float(at_share))
        start = cls(models, sources, feels, presses, _prior(len(models), sources), LEAST_NOISE, np.zeros((0, 0)))
        everything = start._slopes(runs)
        if not observations:
            return cls(models, sources, feels, presses, start.covariance, LEAST_NOISE, everything)
        slopes = start._slopes(seen)
        told = np.array([start._extra(run) for run in seen])
        errors = np.array([each.slowdown - 1 for each in observations]) - told
        noise = max(LEAST_NOISE, float(np.sqrt(np.mean(errors**2))))
        inverse = np.linalg.inv(start.covariance) + slopes.T @ slopes / noise**2
        return cls(models, sources, feels, presses, np.asarray(np.linalg.inv(inverse), float), noise, everything)

    @property
    def variances(self) -> Floats:
        """How unsure each slowdown is that could be observed."""
        found: Floats = np.einsum("ij,jk,ik->i", self.everything, self.covariance, self.everything)
        return np.maximum(found, 0.0)

    def gain(self, runs: Sequence[SharedRun]) -> float:
        """Returns by how much observing these lowers the mean variance of all that could be observed."""
        slopes = self._slopes(runs)
        cross = self.covariance @ slopes.T
        inner = slopes @ cross + self.noise**2 * np.eye(len(runs))
        lower = self.everything @ cross
        return float(np.mean(np.einsum("ij,jk,ik->i", lower, np.linalg.inv(inner), lower)))

    def _extra(self, run: SharedRun) -> float:
        pressed = sum(self.presses[self.sources.index((n.model, n.sm_percent))] for n in run.neighbours)
        return float(self.feels[self.models.index(run.model)] * pressed)

    def _slopes(self, runs: Sequence[SharedRun]) -> Floats:
        slopes = np.zeros((len(runs), len(self.models) + len(self.sources)))
        for row, run in enumerate(runs):
            mine = self.models.index(run.model)
            for neighbour in run.neighbours:
                source = self.sources.index((neighbour.model, neighbour.sm_percent))
                slopes[row, mine] += self.presses[source]
                slopes[row, len(self.models) + source] += self.feels[mine]
        return slopes


def _prior(models: int, sources: Sequence[tuple[str, int]]) -> Floats:
    size = models + len(sources)
    prior: Floats = PRIOR_DEVIATION**2 * np.eye(size)
    for row, (model, share) in enumerate(sources):
        for column, (other, at) in enumerate(sources):
            if model == other:
                alike = np.exp(-abs(np.log2(share / at)) / ALIKE_DOUBLINGS)
                prior[models + row, models + column] = PRIOR_DEVIATION**2 * alike
    return prior
