"""Corrects profiles by measurements: bounded corrections with their evidence, slow enough to keep plans stable."""

from __future__ import annotations

from app.control.observe.drift.correct import ProfileCorrection, update_correction
from app.control.observe.drift.drift import Drift
from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.predict import Prediction, predict_running

__all__ = ["Drift", "Observation", "Prediction", "ProfileCorrection", "predict_running", "update_correction"]
