"""Entitlements: guarantees first, the rest by priority and weight, and no thrashing on the way there."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.control.formulate.tenants import TenantTerms, fair_shares, find_entitled_limits, max_min_shares
from solvers.planning.problem import Limit

AMOUNTS = st.floats(0, 100)
CLOSE = 1e-6


@st.composite
def contentions(draw: st.DrawFn) -> tuple[dict[str, TenantTerms], dict[str, dict[int, float]], float]:
    """Tenants whose guarantees fit the fleet together, and more asked for than there is."""
    gpus = draw(st.floats(4, 100))
    names = [f"t{n}" for n in range(draw(st.integers(2, 6)))]
    parts = [draw(st.floats(0, 1)) for _ in names]
    whole = max(sum(parts), 1.0)
    terms = {}
    for name, part in zip(names, parts, strict=True):
        guarantee = gpus * part / whole * 0.99
        most = draw(st.none() | st.floats(1, 2))
        terms[name] = TenantTerms(guarantee, Limit(None if most is None else max(guarantee * most, 0.1)))
    terms["t0"] = TenantTerms(max(terms["t0"].guarantee_gpus, 0.01), terms["t0"].limit)
    demands = {name: draw(st.dictionaries(st.sampled_from([50, 100, 200]), AMOUNTS, max_size=3)) for name in names}
    return terms, demands, gpus


def within(terms: TenantTerms, demand: dict[int, float]) -> float:
    most = terms.limit.gpus
    return sum(demand.values()) if most is None else min(sum(demand.values()), most)


@given(st.dictionaries(st.sampled_from("abcdef"), AMOUNTS), AMOUNTS, st.integers(0, 2**16))
def test_sharing_gives_no_tenant_more_than_it_needs_and_levels_the_others(
    needs: dict[str, float], amount: float, seed: int
) -> None:
    r = Random(seed)
    weights = {name: r.uniform(0.5, 5) for name in needs}
    found = max_min_shares(needs, weights, amount)
    assert sum(found.values()) <= amount + CLOSE
    assert all(0 <= found[name] <= needs[name] + CLOSE for name in needs)
    level = max((found[name] / weights[name] for name in needs), default=0)
    for name in needs:
        if found[name] < needs[name] - CLOSE:  # a tenant that does not get all it needs is at the highest level
            assert found[name] / weights[name] == pytest.approx(level, rel=1e-6, abs=1e-6)
            assert sum(found.values()) == pytest.approx(amount, rel=1e-6, abs=1e-5)


@pytest.mark.slow
@given(contentions())
def test_no_tenant_is_below_its_guarantee_while_it_needs_it_and_nothing_is_left_idle(
    given_: tuple[dict[str, TenantTerms], dict[str, dict[int, float]], float],
) -> None:
    terms, demands, gpus = given_
    found = fair_shares(terms, demands, gpus)
    assert sum(found.values()) <= gpus + CLOSE
    for tenant, share in found.items():
        wanted = within(terms[tenant], demands[tenant])
        assert min(wanted, terms[tenant].guarantee_gpus) - CLOSE <= share <= wanted + CLOSE
    everything = sum(within(terms[tenant], demands[tenant]) for tenant in demands)
    assert sum(found.values()) == pytest.approx(min(gpus, everything), rel=1e-6, abs=1e-4)


def test_where_there_is_less_than_was_guaranteed_guarantees_shrink_alike() -> None:
    terms = {"shop": TenantTerms(6), "lab": TenantTerms(2)}
    assert fair_shares(terms, {"shop": {100: 9.0}, "lab": {100: 9.0}}, 4.0) == {"shop": 3.0, "lab": 1.0}


def test_what_is_left_goes_to_the_higher_priority_first() -> None:
    terms = {"shop": TenantTerms(2), "lab": TenantTerms(2)}
    found = fair_shares(terms, {"shop": {100: 2.0, 10: 6.0}, "lab": {200: 5.0}}, 8.0)
    assert found == pytest.approx({"shop": 3.0, "lab": 5.0})


def test_an_idle_guarantee_is_lent_and_comes_back_with_the_demand() -> None:
    terms = {"shop": TenantTerms(6), "lab": TenantTerms(2)}
    requested = {"shop": {100: 1.0}, "lab": {100: 9.0}}
    assert find_entitled_limits(terms, requested, 8.0) == {"lab": Limit(7.0, source="share")}
    assert find_entitled_limits(terms, requested | {"shop": {100: 8.0}}, 8.0) == {
        "shop": Limit(6.0, source="share"),
        "lab": Limit(2.0, source="share"),
    }


def test_with_enough_for_all_and_without_guarantees_only_declared_limits_apply() -> None:
    declared = Limit(9.0, 20.0)
    requested = {"shop": {100: 9.0}, "lab": {100: 9.0}}
    assert find_entitled_limits({"shop": TenantTerms(0, declared)}, requested, 4.0) == {"shop": declared}
    assert find_entitled_limits({"shop": TenantTerms(4, declared)}, requested, 18.0) == {"shop": declared}


@pytest.mark.slow
@given(contentions(), st.integers(0, 2**16))
def test_under_contention_what_is_used_converges_to_the_fair_share_within_ten_cycles_and_then_rests(
    given_: tuple[dict[str, TenantTerms], dict[str, dict[int, float]], float], seed: int
) -> None:
    """One tenant holds everything at first. A cycle moves at most a third of the copies, and loads vary by 1 %."""
    terms, demands, gpus = given_
    r = Random(seed)
    lucky = r.choice(sorted(terms))
    used = {tenant: gpus if tenant == lucky else 0.0 for tenant in terms}
    history = []
    for _ in range(20):
        breathing = {t: {p: need * r.uniform(0.99, 1.01) for p, need in by.items()} for t, by in demands.items()}
        limits = find_entitled_limits(terms, breathing, gpus, used)
        wants = {}
        for tenant, by in breathing.items():
            most = limits.get(tenant, Limit()).gpus
            wants[tenant] = sum(by.values()) if most is None else min(sum(by.values()), most)
        step = gpus / 3
        for tenant in terms:  # departures make room for arrivals
            used[tenant] = max(wants[tenant], used[tenant] - step) if used[tenant] > wants[tenant] else used[tenant]
        for tenant in sorted(terms):
            free = gpus * 1.06 - sum(used.values())  # no fleet is filled to the last per cent of its GPUs
            used[tenant] += max(min(wants[tenant] - used[tenant], step, free), 0.0)
        history.append(dict(used))
    share = fair_shares(terms, demands, gpus)
    for tenant in terms:
        settled = history[9][tenant]
        # The last in line lives on what the variation of the others leaves.
        assert settled == pytest.approx(share[tenant], rel=0.07, abs=0.03 * gpus)
        requested = within(terms[tenant], demands[tenant])
        assert settled >= min(requested * 0.98, terms[tenant].guarantee_gpus) - CLOSE
