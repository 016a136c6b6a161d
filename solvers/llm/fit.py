"""The coefficients of an iteration, found from mean TTFT and TPOT that a load tool measured at rates or concurrencies.

Each candidate is replayed request by request, so a load near saturation counts for what it shows in its time, and not
as a steady state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.sweeps.load import MeasuredLoad, OfferedRequests, ServerModel

Floats = NDArray[np.float64]

START = IterationCost(2.0, 0.03, 5.0, 0.02, 5e-5, 1e-6, 1.0)  # orders of magnitude of today's GPUs
START_REQUEST_MS = 1.0
LEAST_MS = 1e-9  # a coefficient this small counts as 0
MOST_LOG_CHANGE = 7.0  # of a coefficient from where the search starts
FEWEST_LOADS, FOLDS = 5, 5  # that a left-out error needs
PULL = 0.01  # towards the start, in logarithms: decides only what the measurements leave open
ROUGH, FINE = 0.1, 0.03  # errors beyond this count less: first all loads shape the fit, then the bulk of them
ROUGH_LOADS = 32  # at most, in the rough search for where the fine one starts
STEP = 5e-3  # of a coefficient's logarithm
ROUGH_ROUNDS, ROUNDS = 12, 25


@dataclass(frozen=True, slots=True)
class FittedServer:
    """A server's model and how far it is from what it was fitted to, in logarithms: a row a load, TTFT and TPOT."""

    model: ServerModel
    errors: tuple[tuple[float, float], ...]

    @property
    def mean_error(self) -> float:
        """Returns the mean absolute error of all that was measured, in logarithms."""
        return float(np.nanmean(np.abs(np.array(self.errors))))


def fit(
    measured: Sequence[MeasuredLoad], limits: BatchingLimits, start: ServerModel | None = None, rounds: int = ROUNDS
) -> FittedServer:
    """Returns the server that comes closest to all measurements.

    Where a start is given, the search begins there, tokens are as late as there, and coefficients that the measurements
    leave open stay there.
    """
    if not measured:
        raise ValueError("no load was measured; a fit needs at least 1")
    if start is None:
        few = measured[:: -(-len(measured) // ROUGH_LOADS)]
        origin = ServerModel(START, limits, START_REQUEST_MS)
        rough = [_fit(few, replace(origin, late_iterations=late), origin, ROUGH, ROUGH_ROUNDS) for late in (0, 1)]
        start = min(rough, key=lambda server: server.mean_error).model
    else:
        origin = start
    return _fit(measured, replace(start, limits=limits), origin, FINE, rounds)


def _fit(
    measured: Sequence[MeasuredLoad], start: ServerModel, origin: ServerModel, scale: float, rounds: int
) -> FittedServer:
    from scipy.optimize import least_squares

    requests = [OfferedRequests(each.load) for each in measured]
    truth = np.log([[each.times.ttft_ms, each.times.tpot_ms] for each in measured])
    first, pulled_to = _point(start), _point(origin)

    def errors(point: Floats) -> Floats:
        times = [each.times(_model(point, start)) for each in requests]
        result: Floats = np.log([[each.ttft_ms, each.tpot_ms] for each in times]) - truth
        return result

    solved = least_squares(
        lambda point: np.concatenate([np.nan_to_num(errors(point)).ravel(), PULL * (point - pulled_to)]),
        first, diff_step=STEP, loss="soft_l1", f_scale=scale, max_nfev=rounds,
        bounds=(first - MOST_LOG_CHANGE, first + MOST_LOG_CHANGE),
    )  # fmt: skip
    left = [(float(ttft), float(tpot)) for ttft, tpot in errors(solved.x)]
    return FittedServer(_model(solved.x, start), tuple(left))


def _point(model: ServerModel) -> Floats:
    result: Floats = np.log(np.maximum(np.array([*astuple(model.cost), model.request_ms]), LEAST_MS))
    return result


def _model(point: Floats, start: ServerModel) -> ServerModel:
    *cost, request_ms = np.exp(point).tolist()
    return replace(start, cost=IterationCost(*cost), request_ms=request_ms)


def left_out_error(measured: Sequence[MeasuredLoad], limits: BatchingLimits, start: ServerModel) -> float | None:
    """Returns the mean share by which servers fitted without a load miss its TTFT and TPOT; None for fewer than 5."""
    if len(measured) < FEWEST_LOADS:
        return None
    missed = []
    for fold in range(FOLDS):
        kept = [each for place, each in enumerate(measured) if place % FOLDS != fold]
        model = fit(kept, limits, start, rounds=4).model
        for each in measured[fold::FOLDS]:
            found = OfferedRequests(each.load).times(model)
            missed += [found.ttft_ms / each.times.ttft_ms - 1, found.tpot_ms / each.times.tpot_ms - 1]
    return float(np.nanmean(np.abs(missed)))
