"""The coefficients of an iteration from a server's log: when each request came, began and ended its answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.sweeps.load import ReplayedRequests, replay_requests

Floats = NDArray[np.float64]

START = IterationCost(5.0, 0.05, 15.0, 0.05, 1e-4, 1e-6, 1.0)
LEAST_MS = 1e-9
PULL = 0.02  # towards the start, in logarithms: decides only what the log leaves open
STEP = 5e-3  # of a coefficient's logarithm
WAIT_STEPS = (0.1, 0.03, 0.01)  # likewise, where waits count: they jump, and only wide steps see where they fall
AGAIN = 8  # searches that begin near the start and near the best point so far, in turns
AGAIN_STEPS, AGAIN_ROUNDS = (*WAIT_STEPS, 0.003), 20
NEAR_START, NEAR_BEST = 0.7, 0.3  # how near: deviations, in logarithms
ENOUGH = 3e-4  # errors of which no search could take much away
BLOCKS = 10  # of requests whose mean waits are compared: a single wait depends on which iteration a request just missed
SCALE_SHARE = 0.05  # errors beyond it count less
ROUNDS = 60
UNBOUNDED_TOKENS = 10**9
KV_SHARES = tuple(np.geomspace(0.4, 1.2, 12).tolist())  # of what would have been held at most
KV_WIDTHS = (0.04, 0.02, 0.01)
FULL_SHARE = 0.5  # of the error without a bound: a bound that explains less is none


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Requests in the order of their arrival; times in ms."""

    arrivals_ms: Floats
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]
    first_ms: Floats  # first token
    last_ms: Floats  # last token
    ranks: NDArray[np.int64] | None = None  # that served them, where the log says so


def replay_log(
    log: RequestLog, limits: BatchingLimits, cost: IterationCost, ranks: NDArray[np.int64] | None = None
) -> ReplayedRequests:
    """Returns what the requests of the log get from a server with these iterations; data ranks may be known."""
    none = np.zeros_like(log.inputs)
    return replay_requests(cost, limits, log.arrivals_ms, log.inputs, log.outputs, none, ranks=ranks)


def fit_requests(log: RequestLog, limits: BatchingLimits, learned: int) -> IterationCost:
    """Returns the cost closest to the times of the first requests; of the others it reads arrivals, lengths and ranks.

    A rank chosen otherwise changes the times of all requests after it, so a log that names the ranks teaches much more.
    """
    return IterationCost(*np.exp(_search(log, limits, learned, AGAIN)[1]).tolist())


def find_kv_tokens(log: RequestLog, limits: BatchingLimits, learned: int) -> int | None:
    """Returns how many tokens each data rank's memory held, from the times of the first requests; None if never full.

    Sizes around what the running requests would have held at most are tried, and ever closer ones around the best.
    """
    errors: dict[int, float] = {}

    def find_best(sizes: Iterable[float]) -> int:
        for size in sizes:
            bounded = replace(limits, kv_tokens=round(size))
            errors[bounded.kv_tokens] = _search(log, bounded, learned, 0)[0]
        return min(errors, key=errors.__getitem__)

    most = _peak_tokens(log, learned) / limits.form.data_ranks
    best = find_best(share * most for share in KV_SHARES)
    for width in KV_WIDTHS:
        best = find_best((best * (1 - width), best * (1 + width)))
    found = errors[best]
    find_best((UNBOUNDED_TOKENS,))
    return best if found < FULL_SHARE * errors[UNBOUNDED_TOKENS] else None


def _peak_tokens(log: RequestLog, learned: int) -> float:
    """Returns the most tokens that the first requests held at once, if each kept its own from first to last token."""
    first, last, inputs, outputs = (each[:learned] for each in (log.first_ms, log.last_ms, log.inputs, log.outputs))
    pace = outputs / np.maximum(last - first, LEAST_MS)
    held = [((first <= now) & (now <= last)) * (inputs + (now - first) * pace) for now in last]
    return float(max(each.sum() for each in held))


def _search(log: RequestLog, limits: BatchingLimits, learned: int, again: int) -> tuple[float, Floats]:
    """Returns the least error and its coefficients, as logarithms."""
    from scipy.optimize import least_squares

    part = slice(0, learned)
    tokens = np.maximum(log.outputs - 1, 1)
    origin = np.log(np.maximum(np.array(astuple(START)), LEAST_MS))
    blocks = np.array_split(np.arange(learned), BLOCKS)
    waited = np.log([(log.first_ms - log.arrivals_ms)[block].mean() for block in blocks])
    tpot = np.log(((log.last_ms - log.first_ms) / tokens)[part])

    def away(point: Floats, waits: bool) -> Floats:
        times = replay_log(log, limits, IterationCost(*np.exp(point).tolist()), log.ranks)
        pace = np.log(((times.last_ms - times.first_ms) / tokens)[part]) - tpot
        found = [pace, PULL * (point - origin)]
        if waits:
            found.append(np.log([(times.first_ms - log.arrivals_ms)[block].mean() for block in blocks]) - waited)
        return np.concatenate(found)

    def search(point: Floats, waits: bool, step: float, rounds: int = ROUNDS) -> tuple[float, Floats]:
        found = least_squares(
            away, point, diff_step=step, loss="soft_l1", f_scale=SCALE_SHARE, max_nfev=rounds, args=(waits,)
        )
        return float(found.cost), found.x

    _, point = search(origin, False, STEP)  # waits jump when a request just misses an iteration: the pace leads the way
    best = np.inf, point
    for step in WAIT_STEPS:
        best = min(best, search(best[1], True, step), key=itemgetter(0))
    generator = np.random.default_rng(0)
    for turn in range(again):
        begun, near = (best[1], NEAR_BEST) if turn % 2 else (origin, NEAR_START)
        point = begun + generator.normal(0.0, near, len(origin))
        for step in AGAIN_STEPS:
            cost, point = search(point, True, step, AGAIN_ROUNDS)
            best = min(best, (cost, point), key=itemgetter(0))
        if best[0] < ENOUGH:
            break
    return best
