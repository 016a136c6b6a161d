"""Compares the rates that planners give language models' servers with the largest that the judge grants them.

python -m tests.proofs.token_capacity --servers 130 --random 90
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, median
from time import process_time

from solvers.llm.capacity import capacity
from solvers.llm.judged import holds
from tests.solvers.llm.drawn import TokenQuestion, question
from tests.solvers.llm.planned import planned_question

FIRST_SEED = 8000
NEAR = 1.004  # times, within which the judge's rate is found
LEAP = 1.06
LEAST_RATE_PER_SECOND = 1e-4


@dataclass(frozen=True, slots=True)
class RatedQuestion:
    """A server's rate by the planner and by the judge, and the processor time of the planner's."""

    seed: int
    planned_per_second: float
    judged_per_second: float
    milliseconds: float

    @property
    def ratio(self) -> float:
        """Returns the planner's rate over the judge's; 1 where neither grants any."""
        if not self.judged_per_second:
            return float("inf") if self.planned_per_second else 1.0
        return self.planned_per_second / self.judged_per_second


def rated(seed: int, server: TokenQuestion) -> RatedQuestion:
    """Returns both rates of a server."""
    began = process_time()
    planned = capacity(*server).rate_per_second
    milliseconds = 1000 * (process_time() - began)
    return RatedQuestion(seed, planned, judged_rate(server, planned or 0.01), milliseconds)


def judged_rate(server: TokenQuestion, guess: float) -> float:
    """Returns the largest rate that the judge grants, by bisection around a guess; 0 where it grants none."""
    low = high = guess
    leap = LEAP
    if holds(*server, guess).kept:
        while holds(*server, high := low * leap).kept:
            low, leap = high, leap**2
    else:
        while not holds(*server, low := high / leap).kept:
            high, leap = low, leap**2
            if low < LEAST_RATE_PER_SECOND:
                return 0.0
    while high > NEAR * low:
        middle = sqrt(low * high)
        low, high = (middle, high) if holds(*server, middle).kept else (low, middle)
    return low


def _told(name: str, found: Sequence[RatedQuestion]) -> str:
    ratios, times = [each.ratio for each in found], [each.milliseconds for each in found]
    near = 100 * sum(0.9 <= ratio <= 1 for ratio in ratios) / len(ratios)
    over = [each.seed for each in found if each.ratio > 1]
    return (
        f"{name}: {len(found)} servers, ratio {min(ratios):.3f} to {max(ratios):.4f}, median {median(ratios):.3f},"
        f" {near:.1f} % in 0.9..1, above 1: {over or 'none'};"
        f" {median(times):.0f} ms in the median, {mean(times):.0f} in the mean, {max(times):.0f} at most"
    )


def main() -> None:
    """Prints how near the planner's rates come to the judge's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=130, help="with profiles of the examples and of family L")
    parser.add_argument("--random", type=int, default=90, help="with random coefficients")
    args = parser.parse_args()
    for name, drawn, count in (("planned", planned_question, args.servers), ("random", question, args.random)):
        if count:
            capacity(*drawn(0))  # loads or compiles the loop
            print(_told(name, [rated(seed, drawn(seed)) for seed in range(FIRST_SEED, FIRST_SEED + count)]), flush=True)


if __name__ == "__main__":
    main()
