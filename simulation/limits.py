"""The limits of orders to simulate. The command line reads them at its start, so this imports nothing large."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

LoadName: TypeAlias = Literal["moving", "wave", "spike", "steady"]
LOADS: tuple[LoadName, ...] = get_args(LoadName)
TruthName: TypeAlias = Literal["planner", "made", "measured"]
TRUTHS: tuple[TruthName, ...] = get_args(TruthName)
ProfilesName: TypeAlias = Literal["declared", "measured", "complete"]
WORK = 60  # of each search of a cycle
WARM_UP_MINUTES = 5  # figures count from then on
SIMULATIONS = 20  # of one sizing
LEAST_RECLAIM_MINUTES = 1
STORM_SECONDS = 600.0  # from its first notice on
LEAST_STORM_MINUTES = 15  # from the beginning of one to that of the next
STORM_SHARE = 1 / 3  # of the spot nodes of a place
LEAST_HOURS = 0.1  # a minute of figures after the warm-up
MOST_HOURS = 31 * 24
MOST_RATE_PER_SECOND = 100_000  # of a service; each request is simulated
POISSON_CV = 1.0  # the coefficient of variation of the gaps between Poisson arrivals
LEAST_GAP_CV, MOST_GAP_CV = 0.1, 10.0
MOST_RATES_BYTES = 64 * 2**20
