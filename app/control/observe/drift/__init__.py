"""What measuring says against profiles: a bounded correction with its evidence, slow enough to shake nothing."""

from __future__ import annotations

from app.control.observe.drift.correct import Corrected, corrected
from app.control.observe.drift.drift import Drift
from app.control.observe.drift.observe import Observation
from app.control.observe.drift.predict import Prediction, predictions

__all__ = ["Corrected", "Drift", "Observation", "Prediction", "corrected", "predictions"]
