"""What a request takes of a GPU, and how many GPUs its load needs: bounds that hold for any kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.sharing.demand import SHARES, KernelGuess, RequestWork, count_gpus, find_service_seconds, find_use

GUESS = KernelGuess(time_times=1.0, mixture=0.5, batch_base=0.1, batch_slope=0.8, neighbours=1.0)
WORK = RequestWork(seconds=0.01, sm_share=0.3)
KERNELS = st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.01, 1.0)), min_size=1, max_size=6)  # time, width


@given(KERNELS, st.floats(0.0, 2.0), st.sampled_from(SHARES))
def test_any_kernels_are_slowed_down_between_one_width_and_the_widest_mixture(
    kernels: list[tuple[float, float]], host: float, share: float
) -> None:
    total = host + sum(time for time, _ in kernels)
    slow = (host + sum(time * max(1.0, width / share) for time, width in kernels)) / total
    work = RequestWork(1.0, sum(time * width for time, width in kernels) / total)
    least, most = (replace(GUESS, mixture=mixture).slow_down(work, share) for mixture in (0.0, 1.0))
    assert least - 1e-9 <= slow <= most + 1e-9


@pytest.mark.parametrize("use", [0.005, 0.05, 0.3, 0.7])
def test_the_time_of_a_request_is_found_from_a_latency_with_waits(use: float) -> None:
    times = next(times / 1000 for times in range(1000, 30_000) if find_use(times / 1000, 1) >= use) if use > 0.2 else (
        2 - 0.01 / use if use > 0.01 else 1.0
    )  # fmt: skip
    assert find_service_seconds(0.02 * times, use / 0.02) == pytest.approx(0.02, rel=0.03)


def test_more_load_a_tighter_slo_and_wider_kernels_need_more_gpus() -> None:
    first = count_gpus(100.0, 0.1, 1, WORK, GUESS)
    assert first < count_gpus(300.0, 0.1, 1, WORK, GUESS)
    assert first < count_gpus(100.0, 0.025, 1, WORK, GUESS)
    assert first < count_gpus(100.0, 0.1, 1, replace(WORK, sm_share=0.7), GUESS)
    assert count_gpus(100.0, 0.1, 12, WORK, GUESS) >= 12 * SHARES[0]


def test_an_slo_that_no_share_keeps_needs_more_gpus_than_there_are() -> None:
    assert count_gpus(1.0, 0.015, 1, WORK, GUESS) == float("inf")
