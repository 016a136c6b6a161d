"""Fits the latency of a model over batch, SM% and clock to few measurements, says how sure it is, and what to measure.

`fit` turns measurements into a curve; `next_setting` chooses the next measurement, or says that there are enough.
`table` turns a curve into the points of a profile.
"""

from __future__ import annotations

from solvers.curves.choose import next_setting
from solvers.curves.curve import CurvePoint, LatencyCurve, clock_exponent, fit, table
from solvers.curves.measurement import Measurement, Setting

__all__ = ["CurvePoint", "LatencyCurve", "Measurement", "Setting", "clock_exponent", "fit", "next_setting", "table"]
