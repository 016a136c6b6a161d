"""The smallest SM%: every way to them gives the same, and the same as trying all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.mudi.sharing.closed import SLACK, find_needed_percent, least_percent, value_at
from solvers.mudi.sharing.convex import NEAR, ConvexSharing, raise_shares
from solvers.mudi.sharing.find import find
from solvers.mudi.sharing.fleet import SharedFleet
from solvers.mudi.sharing.judge import violations
from solvers.mudi.sharing.problem import SharedGpu, SharingResident, WrongSharing
from tests.solvers.mudi.sharing.gpus import right_answers, shared_gpus
from tests.support.soak import scaled

CURVE = ((10, 40.0), (30, 20.0), (100, 13.0))


def resident(name: str = "a", **changes: object) -> SharingResident:
    base = SharingResident(
        name, batch=8, latency_ms=CURVE, slo_ms=100, rate_per_second=400
    )  # 20 ms a batch are allowed
    return replace(base, **changes)  # type: ignore[arg-type]


def smallest(gpu: SharedGpu, work_limit: int = 2000) -> dict[str, int] | None:
    """Returns the SM% found, by resident; None if none were."""
    percents = find(gpu, work_limit).percents
    return None if percents is None else dict(zip((each.name for each in gpu.residents), percents, strict=True))


# By hand


def test_alone_the_smallest_sm_is_where_the_curve_meets_what_is_allowed() -> None:
    assert smallest(SharedGpu((resident(),))) == {"a": 30}
    assert find(SharedGpu((resident(),)), 0).bound_percent == 30


def test_a_neighbour_that_keeps_its_sm_slows_as_much_as_it_presses() -> None:
    # 20 / (1 + 0.5 x 0.5) = 16 ms alone: 30 % + 70 % x (20 - 16) / 7
    assert smallest(SharedGpu((resident(sensitivity=0.5),), other_pressure=0.5)) == {"a": 70}


def test_two_who_press_on_each_other_raise_each_other() -> None:
    pressing = ((10, 0.0), (100, 0.9))
    pair = tuple(resident(name, sensitivity=0.2, pressure=pressing) for name in ("a", "b"))
    assert smallest(SharedGpu(pair)) == {"a": 43, "b": 43}  # 18.7 x (1 + 0.2 x 0.33) = 19.93 ms; at 42 %, 20.003


def test_requests_outstanding_may_be_stated() -> None:
    # W = 16 of batch 8: two batches within 100 ms, 50 ms each
    assert smallest(SharedGpu((resident(outstanding=16.0),))) == {"a": 10}


def test_the_rule_as_printed_lets_a_batch_outlast_the_slo_unless_it_counts_as_a_whole_one() -> None:
    rare = resident(rate_per_second=1.0, slo_ms=14.0)
    assert smallest(SharedGpu((rare,))) == {"a": 10}  # 40 ms a batch under an SLO of 14 ms
    assert smallest(SharedGpu((replace(rare, batches_at_least=1.0),))) == {"a": 90}


def test_an_empty_gpu_needs_nothing() -> None:
    assert smallest(SharedGpu(())) == {}


# Against each other


@pytest.mark.slow
@settings(max_examples=scaled(2000, 80), deadline=None)
@given(shared_gpus())
def test_the_answer_is_the_smallest_of_all_right_ones_for_everyone_at_once(gpu: SharedGpu) -> None:
    right, found = right_answers(gpu), find(gpu, 2000)
    if not right:
        assert (found.percents, found.bound_percent) == (None, None)
        return
    assert smallest(gpu) == {name: min(percents[name] for percents in right) for name in right[0]}
    assert found.percents and found.bound_percent == sum(found.percents)


@pytest.mark.slow
@settings(max_examples=scaled(1000, 25), deadline=None)
@given(shared_gpus())
def test_the_convex_solver_raises_to_the_same_sm(gpu: SharedGpu) -> None:
    by_convex = raise_shares([gpu])
    fits = by_convex is not None and sum(by_convex[0]) <= gpu.free_percent
    assert find(gpu, 2000).percents == (by_convex[0] if by_convex and fits else None)


@pytest.mark.slow
@settings(max_examples=scaled(300, 15), deadline=None)
@given(st.lists(shared_gpus(), max_size=12))
def test_one_convex_problem_for_all_gpus_has_the_answers_of_one_for_each(gpus: list[SharedGpu]) -> None:
    alone = [raise_shares([gpu]) for gpu in gpus]
    together = raise_shares(gpus)
    assert together == (None if None in alone else [found[0] for found in alone if found])


@pytest.mark.slow
@settings(max_examples=scaled(1000, 25), deadline=None)
@given(shared_gpus(convex=True))
def test_closed_form_and_convex_solver_agree_for_given_pressure(gpu: SharedGpu) -> None:
    pressures = np.linspace(0, 2, len(gpu.residents)).tolist()
    convex = ConvexSharing(gpu.residents)
    found, whole = convex.least_percents(pressures), convex.least_whole_percents(pressures)
    closed = [find_needed_percent(r, pressure) for r, pressure in zip(gpu.residents, pressures, strict=True)]
    if found is None or whole is None:
        assert None in closed
        return
    assert list(whole) == closed
    for r, pressure, percent in zip(gpu.residents, pressures, found, strict=True):
        most_ms = r.most_exec_ms / (1 + r.sensitivity * pressure) * (1 + SLACK)
        exact = least_percent(r.latency_ms, most_ms)
        assert exact is not None
        assert percent <= exact + NEAR
        assert value_at(r.latency_ms, percent) <= most_ms * (1 + 1e-6)


@settings(max_examples=scaled(2000, 100), deadline=None)
@given(shared_gpus(may_fall=True))
def test_where_pressure_falls_the_search_finds_the_least_sum(gpu: SharedGpu) -> None:
    right, answer, bound = right_answers(gpu), smallest(gpu), find(gpu, 2000).bound_percent
    if not right:
        assert (answer, bound) == (None, None)
        return
    assert answer
    assert violations(gpu, answer) == []
    assert sum(answer.values()) == bound == min(sum(percents.values()) for percents in right)


@settings(max_examples=scaled(1000, 60), deadline=None)
@given(shared_gpus(may_fall=True))
def test_without_work_the_answer_is_still_valid_or_reports_that_none_was_found(gpu: SharedGpu) -> None:
    right, answer, bound = right_answers(gpu), smallest(gpu, 0), find(gpu, 0).bound_percent
    if answer is not None:
        assert violations(gpu, answer) == []
        assert bound is not None and bound <= min(sum(percents.values()) for percents in right)
    else:
        assert bound is not None or not right


@settings(max_examples=scaled(300, 20), deadline=None)
@given(st.lists(shared_gpus(), max_size=5))
def test_many_gpus_in_one_call_are_decided_as_each_alone(gpus: list[SharedGpu]) -> None:
    fleet = SharedFleet.of(gpus)
    together = fleet.decide(fleet.most_exec_ms)
    for g, gpu in enumerate(gpus):
        answer = smallest(gpu)
        fits = not together.blocked[g] and together.totals[g] <= gpu.free_percent
        assert fits == (answer is not None)
        if answer is not None:
            percents = together.percents[fleet.first[g] : fleet.first[g + 1]]
            assert list(answer.values()) == percents.tolist()


@settings(max_examples=scaled(500, 50), deadline=None)
@given(shared_gpus())
def test_a_higher_rate_never_lowers_an_sm(gpu: SharedGpu) -> None:
    busier = tuple(replace(resident, rate_per_second=resident.rate_per_second * 1.2) for resident in gpu.residents)
    before, after = smallest(gpu), smallest(replace(gpu, residents=busier))
    if after is not None:
        assert before is not None
        assert all(before[name] <= percent for name, percent in after.items())


# What is refused


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch": 0}, "resident a: batch 0 is below 1"),
        ({"slo_ms": 0.0}, "resident a: sloMs 0 is not a finite number over 0"),
        ({"rate_per_second": float("nan")}, "ratePerSecond nan"),
        ({"outstanding": -1.0}, "outstanding -1"),
        ({"sensitivity": -0.1}, "sensitivity -0.1"),
        ({"latency_ms": ()}, "latencyMs has no points"),
        ({"latency_ms": ((10, 5.0), (20, 6.0))}, "latencyMs rises from 5 at 10 % to 6 at 20 %"),
        ({"latency_ms": ((20, 5.0), (10, 6.0))}, "1..100 is allowed|do not rise"),
        ({"latency_ms": ((10, 5.0), (101, 4.0))}, "reaches from 10 % to 101 %"),
        ({"latency_ms": ((10, 0.0),)}, "latencyMs at 10 % 0 is not a finite number over 0"),
        ({"pressure": ((10, -0.5),)}, "pressure -0.5 at 10 % is below 0"),
    ],
)
def test_a_resident_with_an_invalid_number_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(WrongSharing, match=says):
        replace(resident(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"residents": (resident(), resident())}, "resident a occurs 2 times"),
        ({"free_percent": 101}, "freePercent 101 is outside 0..100"),
        ({"other_pressure": -1.0}, "otherPressure -1"),
    ],
)
def test_a_gpu_with_an_invalid_number_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(WrongSharing, match=says):
        replace(SharedGpu((resident(),)), **changes)  # type: ignore[arg-type]
