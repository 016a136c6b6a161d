"""Too little capacity: requests wait first, then 503 for the share that cannot be answered in time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from app.control.domain.snapshot import ExpectedLoad
from app.control.tell.degrade.shedding import Shedding, SloTarget, plan_shedding
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance

SEARCH = "shop/search"
PROMISES = {SEARCH: SloTarget(100.0)}


def instance(rate: float, node: str = "n1", service: str = SEARCH) -> Instance:
    return Instance(f"{service}-{node}", service, node, 0, "v", 4, 0.0, 40, 2.0, 1200.0, rate)


def expected(rate: float) -> dict[str, ExpectedLoad]:
    return {SEARCH: ExpectedLoad(rate, observed_per_second=rate, observed_seconds=600.0)}


def plan(carried: float, unserved: float) -> Plan:
    return Plan((instance(carried),), unserved=(Unserved(SEARCH, unserved),) if unserved else ())


def test_a_service_that_is_served_is_not_shed_and_may_queue_for_bursts() -> None:
    assert plan_shedding(plan(90.0, 0.0), expected(200.0), PROMISES) == {SEARCH: Shedding(0.0, 31, 2)}


def test_what_cannot_be_carried_is_shed_and_what_waits_is_what_can_still_be_in_time() -> None:
    assert plan_shedding(plan(60.0, 40.0), expected(100.0), PROMISES) == {SEARCH: Shedding(0.4, 16, 30)}


def test_a_little_too_much_only_waits() -> None:
    assert plan_shedding(plan(97.0, 3.0), expected(100.0), PROMISES)[SEARCH].share == 0


def test_nothing_is_refused_while_less_is_asked_than_was_expected() -> None:
    assert plan_shedding(plan(60.0, 40.0), expected(55.0), PROMISES)[SEARCH].share == 0


def test_callers_of_a_service_without_a_suitable_profile_are_asked_to_retry_much_later() -> None:
    found = plan_shedding(
        Plan((), unserved=(Unserved(SEARCH, 10.0),)), expected(10.0), {SEARCH: SloTarget(100.0, False)}
    )
    assert (found[SEARCH].share, found[SEARCH].retry_after_seconds) == (1.0, 300)


def test_what_pinned_instances_carry_is_not_missing() -> None:
    assert plan_shedding(plan(30.0, 10.0), expected(100.0), PROMISES)[SEARCH].share == 0.7
    assert plan_shedding(plan(30.0, 10.0), expected(100.0), PROMISES, pinned={SEARCH: 60.0})[SEARCH].share == 0.1


def test_a_limit_is_parted_among_gateways() -> None:
    alone, three = (
        plan_shedding(plan(900.0, 0.0), expected(900.0), PROMISES, gateways=n)[SEARCH].queue_limit for n in (1, 3)
    )
    assert three * 3 >= alone > three


@given(st.floats(0.1, 0.9), st.integers(0, 2**16))
def test_a_load_that_breathes_by_two_per_cent_never_moves_the_share(part: float, seed: int) -> None:
    r, demand = Random(seed), 100.0
    now = plan_shedding(plan(demand * part, demand * (1 - part)), expected(demand), PROMISES)
    for _ in range(50):
        breathing = demand * r.uniform(0.98, 1.02)
        found = plan_shedding(plan(demand * part, demand * (1 - part)), expected(breathing), PROMISES, before=now)
        assert found == now


@given(st.floats(0, 200), st.floats(0, 200), st.floats(0, 1))
def test_never_more_is_refused_than_a_step_beyond_what_is_missing(carried: float, demand: float, before: float) -> None:
    found = plan_shedding(plan(carried, 1.0), expected(demand), PROMISES, before={SEARCH: Shedding(before)})[SEARCH]
    missing = max(0.0, 1 - carried / demand) if demand else 0.0
    assert 0 <= found.share <= 1
    assert found.share <= missing + 0.075


def test_a_copy_answers_in_time_what_fits_into_the_batches_of_its_slo() -> None:
    """Batches of four in 30 ms, within 100 ms: three of them, parted among gateways."""
    lines = tuple(replace(instance(20.0, node), exec_ms=exec_ms) for node, exec_ms in (("n1", 30.0), ("n2", 120.0)))
    unknown = instance(20.0, "n3")
    for gateways, most in ((1, 12), (5, 3)):
        found = plan_shedding(Plan((*lines, unknown)), expected(60.0), PROMISES, gateways=gateways)[SEARCH]
        assert found.in_time == {"n1/0": most, "n2/0": 4 if gateways == 1 else 1}
