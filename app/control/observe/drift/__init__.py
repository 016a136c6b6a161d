"""Corrects profiles by measurements, each region of a curve by its own, slowly enough to keep plans stable."""

from __future__ import annotations

from app.control.observe.drift.correct import ProfileCorrection, ProfileEvidence, update_correction
from app.control.observe.drift.drift import Drift
from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.predict import Prediction, predict_running, profile_places

__all__ = [
    "Drift",
    "Observation",
    "Prediction",
    "ProfileCorrection",
    "ProfileEvidence",
    "predict_running",
    "profile_places",
    "update_correction",
]
