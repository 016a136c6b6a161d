"""Renting by accounts against hindsight, which plain code computes: every slot, every number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.renting import IdleNodes, RentAccount, RentalTerms, find_hindsight
from tests.support.soak import scaled

HOUR = 3600.0
NEEDS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def rent_by_account(needs: Sequence[int], price: float, term: int, waiting_price: float) -> float:
    """Returns what the accounts pay. The oldest node goes first."""
    terms, cost = RentalTerms(price, 0.0, term * HOUR), 0.0
    account, idle, ages = RentAccount(), IdleNodes(), list[int]()  # slots that each node was paid for
    for slot, need in enumerate(needs):
        idle = idle.note(max(0, len(ages) - need), slot * HOUR)
        may_go = sorted((age for age in ages if age >= term), reverse=True)[: idle.count_due(terms, slot * HOUR)]
        for age in may_go:
            ages.remove(age)
        idle = idle.give_back(len(may_go))
        missing = max(0, need - len(ages))
        account = account.wait(missing * waiting_price, HOUR)
        if missing and account.may_rent(terms, missing, 0.0):
            ages += [0] * missing
            account = RentAccount()
        else:
            cost += missing * waiting_price
        cost += price * len(ages)
        ages = [age + 1 for age in ages]
    return cost + sum(price * max(0, term - age) for age in ages)


def least_cost(needs: Sequence[int], price: float, term: int, waiting_price: float = float("inf")) -> float:
    """Returns the least cost of all rentals: slot by slot, for all that may be left of the terms of what stands."""

    @cache
    def best(slot: int, left: tuple[int, ...]) -> float:
        """`left` is how many slots of each node's term are yet to be paid; with 0 it may go."""
        if slot == len(needs):
            return price * sum(left)
        bound = [rest for rest in left if rest > 0]
        found = float("inf")
        for stays in range(left.count(0) + 1):
            for comes in range(max(needs) + 1):
                standing = len(bound) + stays + comes
                short = max(0, needs[slot] - standing)
                if (standing > max(needs) and comes) or (short and waiting_price == float("inf")):
                    continue
                after = sorted([rest - 1 for rest in bound] + [0] * stays + [term - 1] * comes)
                cost = price * standing + (waiting_price * short if short else 0.0)
                found = min(found, cost + best(slot + 1, tuple(after)))
        return found

    return best(0, ())


@settings(max_examples=scaled(5000, 300, 60))
@given(NEEDS, st.integers(1, 6), st.integers(1, 5))
def test_a_pool_whose_needs_cannot_wait_pays_at_most_twice_the_least(needs: list[int], term: int, price: int) -> None:
    paid = rent_by_account(needs, price, term, waiting_price=price * term)
    assert paid <= 2 * least_cost(needs, price, term) + 1e-9


@settings(max_examples=scaled(5000, 300, 60))
@given(NEEDS, st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_a_pool_whose_needs_may_wait_pays_at_most_three_times_the_least(
    needs: list[int], price: int, dearer: int, term: int
) -> None:
    term *= dearer  # so that waiting costs exactly a term after some slots
    paid = rent_by_account(needs, price, term, waiting_price=price * dearer)
    assert paid <= 3 * least_cost(needs, price, term, price * dearer) + 1e-9


@pytest.mark.slow
@settings(max_examples=scaled(300, 60, 20))
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 4), st.integers(1, 3))
def test_hindsight_is_what_a_dynamic_programme_finds(needs: list[int], term: int, price: int) -> None:
    found = find_hindsight(needs, price, term)
    assert found is not None
    assert found.cost == pytest.approx(least_cost(needs, price, term), abs=1e-6)
    assert found.bound <= found.cost + 1e-6
    assert all(stands >= need for stands, need in zip(found.nodes, needs, strict=True))


def test_nodes_idle_for_a_start_before_they_are_given_back() -> None:
    terms = RentalTerms(2.0, 300.0, 600.0)
    assert terms.entry_price == pytest.approx(0.5)
    idle = IdleNodes().note(1, 0.0).note(3, 200.0)
    assert idle.count_due(terms, 299.0) == 0
    assert idle.count_due(terms, 300.0) == 1
    assert idle.count_due(terms, 500.0) == 3
    assert idle.note(1, 300.0).note(3, 400.0).count_due(terms, 500.0) == 1, "the others were needed meanwhile"
    assert idle.give_back(1).count_due(terms, 499.0) == 0


def test_a_need_that_ends_is_forgotten_and_a_large_saving_waits_for_nothing() -> None:
    terms, account = RentalTerms(2.0, 0.0, 3600.0), RentAccount().wait(1.0, 3600.0)
    assert not account.may_rent(terms, 1, 1.0)
    assert account.wait(1.0, 3600.0).may_rent(terms, 1, 1.0)
    assert account.wait(0.0, 60.0) == RentAccount()
    assert RentAccount().may_rent(terms, 2, 4.0)
