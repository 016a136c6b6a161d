"""InSS's Tables 2 and 3: observed execution times, and how far predictions of left-out ones are off.

The paper measures a model at 16 settings and predicts each of them. Here a row has four observed times only, so each
time that lies between others is predicted from the other three, which is harder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lab.evaluate.verdicts import MeasuredFigure, measured_alike
from solvers.curves.curve import fit
from solvers.curves.measurement import Measurement
from solvers.planners.names import INSS, JOINT

TABLE = "interpolation"
METHODS = {INSS: "local regression", TABLE: None, JOINT: None}  # of `fit`; None: what fits best
CLOCK_MHZ = 1650


@dataclass(frozen=True, slots=True)
class ObservedRow:
    """A row: what varies, its values, and the observed milliseconds."""

    model: str
    varies: str  # batch, sm or neighbour: the SM% of the model beside it
    at: tuple[int, ...]
    observed_ms: tuple[float, ...]
    fixed: int  # the SM% where batches vary, else the batch


BATCHES, SHARES = (1, 4, 8, 16), (6, 24, 42, 60)
TABLE_2 = (
    ObservedRow("resnet50", "batch", BATCHES, (8.690, 23.285, 43.422, 71.456), 30),
    ObservedRow("alexnet", "batch", BATCHES, (2.848, 5.674, 8.898, 10.191), 30),
    ObservedRow("vgg16", "batch", BATCHES, (18.196, 62.009, 120.382, 176.308), 30),
)
TABLE_3 = (
    ObservedRow("mnasnet", "sm", SHARES, (13.686, 4.241, 3.468, 3.409), 4),
    ObservedRow("resnet18", "sm", SHARES, (43.016, 11.446, 7.422, 5.483), 4),
    ObservedRow("vgg19", "sm", SHARES, (358.270, 91.690, 53.947, 39.411), 4),
    ObservedRow("efficientnet", "neighbour", SHARES, (15.515, 16.170, 16.958, 17.516), 4),
)


def table_figures(seeds: int) -> dict[str, MeasuredFigure]:
    """Returns the figures of both tables; no seed changes them."""
    tables = {"errors of table 2": TABLE_2, "errors of table 3": TABLE_3}
    return {name: measured_alike([worst_errors(rows)] * seeds) for name, rows in tables.items()}


def worst_errors(rows: Sequence[ObservedRow]) -> dict[str, float]:
    """Returns by method the largest error of a time predicted from the others of its row, in percent."""
    return {name: max(max(errors(row, name)) for row in rows) for name in METHODS}


def errors(row: ObservedRow, name: str) -> list[float]:
    """Returns the errors of the inner times of a row, in percent."""
    predict = _predict_growing(name) if row.varies == "neighbour" else _alone(name)
    found = []
    for left_out in range(1, len(row.at) - 1):
        kept = [number for number in range(len(row.at)) if number != left_out]
        known = [(row.at[number], row.observed_ms[number]) for number in kept]
        predicted = predict(row, known, row.at[left_out])
        found.append(100 * abs(predicted / row.observed_ms[left_out] - 1))
    return found


Predict = Callable[[ObservedRow, Sequence[tuple[int, float]], int], float]


def _alone(name: str) -> Predict:
    def predict(row: ObservedRow, known: Sequence[tuple[int, float]], at: int) -> float:
        if name == TABLE:
            return float(np.exp(np.interp(np.log(at), *np.log(np.array(known)).T)))
        measured = [Measurement(*_setting(row, value), ms, 0.0, 1) for value, ms in known]
        curve = fit(measured, CLOCK_MHZ, METHODS[name])
        return curve.mean_ms(*_setting(row, at))

    return predict


def _predict_growing(name: str) -> Predict:
    """Returns the rule for a neighbour that grows: a line (L2 use is linear in SM%), or lines between the times."""

    def predict(row: ObservedRow, known: Sequence[tuple[int, float]], at: int) -> float:
        shares, times = [value for value, _ in known], [ms for _, ms in known]
        if name == TABLE:
            return float(np.interp(at, shares, times))
        slope, base = np.polyfit(shares, times, 1)
        return float(base + slope * at)

    return predict


def _setting(row: ObservedRow, value: int) -> tuple[int, int, int]:
    return (value, row.fixed, CLOCK_MHZ) if row.varies == "batch" else (row.fixed, value, CLOCK_MHZ)
