"""The interval of level L1 contains what the planner saves with true profiles, in estates whose truth is drawn."""

from __future__ import annotations

from random import Random
from statistics import median

import pytest

from clusters.certified.planning import certify_savings
from clusters.sharing import estimate_sharing
from solvers.planning.solve import SolveBudget
from tests.clusters.sharing.estates import draw_estate
from tests.clusters.sharing.families import FAMILIES
from tests.support.soak import SOAK

WORK = 60  # steps of the planner: more find the same here
SMALL_DRAWS = (2, 22)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_interval_contains_what_true_profiles_certify(family: str) -> None:
    contained, widths, first = 0, [], FAMILIES[family].first_seed
    for seed in range(100) if SOAK else SMALL_DRAWS:
        drawn = draw_estate(Random(first + seed), family)
        read = drawn.read()
        needs, paid = read.savings.needs, read.bill.nano_per_hour
        truth = certify_savings(
            read.estate, read.bill, read.measured, needs, read.promises, drawn.known(), SolveBudget(None, WORK),
            alone=True,
        )  # fmt: skip
        assert truth.limit_nano_per_hour is None or truth.nano_per_hour <= truth.limit_nano_per_hour <= paid
        found = estimate_sharing(read.estate, read.bill, read.measured, needs, read.gpus)
        contained += found.low_nano_per_hour <= truth.nano_per_hour <= found.high_nano_per_hour
        widths.append(100 * (found.high_nano_per_hour - found.low_nano_per_hour) / paid)
    width = median(widths)
    assert contained >= 0.9 * len(widths), f"{contained} of {len(widths)}, {width:.1f} points"
    assert not SOAK or width <= FAMILIES[family].most_width, f"{width:.1f} points"
