"""The coefficients of an iteration from a server's log: when each request came, began and ended its answer."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.sweeps.kernels import replay

Floats = NDArray[np.float64]

START = IterationCost(5.0, 0.05, 15.0, 0.05, 1e-4, 1e-6, 1.0)
LEAST_MS = 1e-9
PULL = 0.02  # towards the start, in logarithms: decides only what the log leaves open
STEP = 5e-3  # of a coefficient's logarithm
BLOCKS = 10  # of requests whose mean waits are compared: a single wait depends on which iteration a request just missed
SCALE_SHARE = 0.05  # errors beyond it count less
ROUNDS = 60


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Requests in the order of their arrival; times in ms."""

    arrivals_ms: Floats
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]
    first_ms: Floats  # first token
    last_ms: Floats  # last token


def replayed(log: RequestLog, limits: BatchingLimits, cost: IterationCost) -> tuple[Floats, Floats]:
    """Returns when each request of the log gets its first and its last token from a server with these iterations."""
    first, second, last = (np.empty(len(log.inputs)) for _ in range(3))
    replay(
        log.arrivals_ms.copy(), log.inputs, log.outputs, np.array(astuple(cost)), limits.sequences,
        limits.tokens_per_iteration, float(limits.kv_tokens), 0, np.inf, first, second, last,
    )  # fmt: skip
    return first, last


def fit_requests(log: RequestLog, limits: BatchingLimits, learned: int) -> IterationCost:
    """Returns the cost closest to the times of the first requests; of the others it reads arrivals and lengths."""
    from scipy.optimize import least_squares

    part = slice(0, learned)
    tokens = np.maximum(log.outputs - 1, 1)
    origin = np.log(np.maximum(np.array(astuple(START)), LEAST_MS))
    blocks = np.array_split(np.arange(learned), BLOCKS)
    waited = np.log([(log.first_ms - log.arrivals_ms)[block].mean() for block in blocks])
    tpot = np.log(((log.last_ms - log.first_ms) / tokens)[part])

    def away(point: Floats, waits: bool) -> Floats:
        first, last = replayed(log, limits, IterationCost(*np.exp(point).tolist()))
        pace = np.log(((last - first) / tokens)[part]) - tpot
        found = [pace, PULL * (point - origin)]
        if waits:
            found.append(np.log([(first - log.arrivals_ms)[block].mean() for block in blocks]) - waited)
        return np.concatenate(found)

    point = origin
    for waits in (False, True):  # waits jump when a request just misses an iteration: the pace leads the way
        found = least_squares(
            away, point, diff_step=STEP, loss="soft_l1", f_scale=SCALE_SHARE, max_nfev=ROUNDS, args=(waits,)
        )
        point = found.x
    return IterationCost(*np.exp(point).tolist())
