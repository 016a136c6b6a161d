"""Interference on a shared GPU, from measured slowdowns: several models behind one seam, chosen by cross-validation."""

from __future__ import annotations

from solvers.interference.candidate import Candidate, FittedInterference
from solvers.interference.choice import CANDIDATES, ChosenInterference, InterferenceModel, fit
from solvers.interference.observation import Neighbour, Observation, SharedRun, Traits, WrongObservation

__all__ = [
    "CANDIDATES",
    "Candidate",
    "ChosenInterference",
    "FittedInterference",
    "InterferenceModel",
    "Neighbour",
    "Observation",
    "SharedRun",
    "Traits",
    "WrongObservation",
    "fit",
]
