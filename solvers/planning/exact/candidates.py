"""Lists the patterns that could be part of an answer of a choice of GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.planning.exact.open_choices import PricedChoice
from solvers.planning.exact.patterns import Codes, Patterns
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.step_prices import StepPrices

SLACK_PARTS = (0.03, 0.05, 0.08, 0.12, 0.17, 0.25, 0.35, 0.5, 0.7, 1.0)
CELL = 0.01  # of a need: of patterns that carry the same but for this, one is enough to find most answers
EXACT_PART = 0.1  # of the most patterns: so many are all kept
EMPTY: Codes = np.full((1, 1), -1, dtype=np.int32)  # the pattern of an empty GPU


@dataclass(frozen=True, slots=True)
class Pass:
    """The effort spent on each open choice of GPUs."""

    patterns: int  # the most of a pool
    sm_step: int  # residents have multiples of so many SM%: coarse lists reach further, and are never whole
    steps: int  # of work


@dataclass(frozen=True, slots=True)
class PoolPatterns:
    """The patterns that may be on a GPU of a pool, and the exact rate of each."""

    pool: int
    number: int  # of GPUs
    codes: Codes
    rates: Floats


@dataclass(frozen=True, slots=True)
class CandidatePatterns:
    """The patterns that could be part of an answer; not whole if there were too many."""

    pools: list[PoolPatterns]
    is_whole: bool


def list_candidates(space: Patterns, choice: PricedChoice, how: Pass) -> CandidatePatterns:
    """Lists each pool's patterns that can be part of an answer next to the best patterns of all other GPUs.

    Of too many, the better ones are listed, and of those that carry about the same services only one.
    """
    pools, is_whole, copies = list[PoolPatterns](), True, space.copy_prices(choice.prices)
    for pool in np.flatnonzero(choice.number).tolist():
        codes, is_all = _list_pool(space, choice, pool, copies, how)
        rates = np.ascontiguousarray(space.exact(pool, codes)[0][:, space.served])
        if len(codes) > EXACT_PART * how.patterns:
            kept = _choose_of_each_cell(rates, rates @ choice.prices[space.served])
            codes, rates, is_all = codes[kept], rates[kept], False
        is_whole = is_whole and is_all and how.sm_step == 1
        pools.append(PoolPatterns(pool, int(choice.number[pool]), codes, rates))
    return CandidatePatterns(pools, is_whole)


def _list_pool(space: Patterns, choice: PricedChoice, pool: int, copies: StepPrices, how: Pass) -> tuple[Codes, bool]:
    """Lists a pool's patterns that are worth most, and tells if these are all that can be part of an answer."""
    v, codes = choice.prices[: len(space.t.services)], EMPTY
    for part in SLACK_PARTS:
        least = float(choice.worth[pool]) - part * choice.slack - 1e-8
        found, is_all = space.worth_least(pool, v, copies, least, how.patterns, how.sm_step)
        if not is_all:
            return (found if codes is EMPTY and len(found) else codes), False
        codes = found if len(found) else codes
    return codes, True


def _choose_of_each_cell(rates: Floats, worth: Floats) -> Ints:
    """Returns the pattern that is worth most of each cell of about the same rates."""
    cells: NDArray[np.int16] = np.floor(rates / CELL).astype(np.int16)
    best_first = np.argsort(-worth, kind="stable")
    rows = np.ascontiguousarray(cells[best_first]).view([("", np.int16)] * cells.shape[1])[:, 0]
    _, first = np.unique(rows, return_index=True)
    return np.sort(best_first[first])
