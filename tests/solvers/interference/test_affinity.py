"""OLTunes' affinity: the paper's formulas at their ends, and the stand-in for its ratio of kernels."""

from __future__ import annotations

import pytest

from solvers.interference.affinity import MOST_RATIO, compute_to_memory, variant_affinity, workload_affinity


def test_models_that_need_the_same_have_half_the_affinity_of_complementary_ones() -> None:
    assert workload_affinity(1.0, 1.0) == 50.0
    assert workload_affinity(0.0, MOST_RATIO) > 99.9
    assert workload_affinity(0.2, 1.2) == workload_affinity(1.2, 0.2) == pytest.approx(73.106, abs=0.001)


def test_a_high_and_a_low_variant_suit_each_other_best() -> None:
    found = [variant_affinity(one, other) for one, other in ((True, False), (False, False), (True, True))]
    assert found == [100.0, 50.0, 0.0]


def test_the_ratio_says_which_part_of_the_time_more_sms_would_shorten() -> None:
    assert compute_to_memory(((10, 100.0), (50, 20.0), (100, 10.0))) == MOST_RATIO
    assert compute_to_memory(((10, 12.0), (100, 12.0))) == 0.0
    half = compute_to_memory(((50, 2**0.5), (100, 1.0)))
    assert half == pytest.approx(1.0)
