"""Interference on a shared GPU, from measured slowdowns: several models behind one seam, chosen by cross-validation."""

from __future__ import annotations

from solvers.interference.candidate import FittedInterference, InterferenceCandidate
from solvers.interference.choice import CANDIDATES, ChosenInterference, InterferenceModel, fit
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation, Traits, WrongObservation

__all__ = [
    "CANDIDATES",
    "ChosenInterference",
    "FittedInterference",
    "InterferenceCandidate",
    "InterferenceModel",
    "Neighbour",
    "SharedRun",
    "SlowdownObservation",
    "Traits",
    "WrongObservation",
    "fit",
]
