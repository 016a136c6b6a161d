"""The planner's conditions of services and tenants, in words that stay while their meaning does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.control.domain.desired import CopyCounts
from app.control.domain.events import Reason
from app.control.formulate.tenants import BudgetAccount, GpuUsage, TenantTerms
from app.control.tell.conditions import CycleFacts, Statement, describe_attained, describe_running, make_statements
from app.control.tell.degrade.degradation import Degraded
from app.manifests.model import Key, Kind
from solvers.planning.language import TokenLengths, TokenPromise, TokenService
from solvers.planning.plan import Unserved
from solvers.planning.problem import Limit
from tests.solvers.planning.small_world import plan, problem

RANK = Key(Kind.SERVICE, "shop", "rank")
SEARCH = Key(Kind.SERVICE, "shop", "search")
SHOP = Key(Kind.TENANT, "", "shop")
GROUND = CycleFacts(problem(), plan())


def statement(facts: CycleFacts, key: Key, type_: str) -> Statement:
    [found] = [statement for statement in make_statements(facts)[key] if statement.type == type_]
    return found


def test_a_service_that_is_served_says_so() -> None:
    planned = statement(GROUND, SEARCH, "Planned")
    assert (planned.status, planned.reason, planned.message) == (
        "True",
        "AllPlanned",
        "the plan carries all 40 requests a second",
    )


def test_a_service_that_is_not_says_how_much_why_and_what_would_help() -> None:
    reasons = {"shop/rank": Unserved("shop/rank", 10.0, "the limit of shop", "limit.gpus: 3 (now 2)")}
    planned = statement(replace(GROUND, reasons=reasons), RANK, "Planned")
    assert (planned.status, planned.reason) == ("False", "Unserved")
    assert planned.message == (
        "the plan carries 20 of 30 requests a second; 10 are unserved: the limit of shop; "
        "least change that helps: limit.gpus: 3 (now 2)"
    )


def test_what_runs_is_compared_with_what_is_planned() -> None:
    why = "i1 on n1/0: exited: no such file"
    found = [
        describe_running(copies)
        for copies in (
            CopyCounts(2, 2, 2),
            CopyCounts(2, 1, 1),
            CopyCounts(2, 0, 0),
            CopyCounts(),
            CopyCounts(2, 1, 1, why),
            CopyCounts(2, 0, 0, why, is_suspect=True),
        )
    ]
    assert [statement.status for statement in found] == ["True", "True", "Unknown", "Unknown", "False", "False"]
    assert [statement.why for statement in found] == [
        Reason.ALL_ROUTED, Reason.COPIES_STARTING, Reason.COPIES_STARTING, Reason.UNSERVED, Reason.COPIES_MISSING,
        Reason.SERVICE_SUSPECT,
    ]  # fmt: skip
    assert found[-2].message == f"1 of 2 planned copies are routed; {why}"
    assert found[-1].message.startswith(f"0 of 2 planned copies are routed; {why}; it fails wherever")
    facts = replace(GROUND, copies={"shop/search": CopyCounts(2, 2, 2)})
    assert statement(facts, SEARCH, "Running").message == "all planned copies are routed"


def test_attainment_is_described_with_the_slo() -> None:
    service = GROUND.problem.services["shop/search"]
    assert [describe_attained(service, share).status for share in (None, 0.98, 0.979)] == ["Unknown", "True", "False"]
    assert describe_attained(service, 0.91).message == "too many requests are late; the SLO is 98 % within 200 ms"


def test_attainment_of_a_language_model_is_described_with_both_promises() -> None:
    tokens = TokenService(TokenPromise(2000.0, 60.0, 95.0), TokenLengths(400.0, 900.0, 100.0, 220.0))
    service = replace(GROUND.problem.services["shop/search"], slo_ms=2000.0, percentile=95.0, tokens=tokens)
    slo = "95 % within 2000 ms to the first token and 60 ms a token"
    assert describe_attained(service, 0.96).message == f"the service keeps its SLO, {slo}"
    assert describe_attained(service, 0.94).message == f"too many requests are late or too slow; the SLO is {slo}"


@given(st.floats(0, 0.97), st.floats(0.98, 1.0))
def test_an_attainment_that_breathes_changes_no_word(low: float, high: float) -> None:
    service = GROUND.problem.services["shop/search"]
    assert describe_attained(service, low) == describe_attained(service, 0.5)
    assert describe_attained(service, high) == describe_attained(service, 0.99)


def test_a_degraded_service_says_why() -> None:
    worse = {"shop/rank": Degraded(Reason.SHEDDING, "20% of its requests are answered 503")}
    statement_found = statement(replace(GROUND, degraded=worse), RANK, "Degraded")
    assert (statement_found.status, statement_found.reason) == ("True", "Shedding")
    assert statement(GROUND, SEARCH, "Degraded").status == "False"


def test_a_spent_budget_is_reported_on_the_tenant_and_on_its_services() -> None:
    accounts = {"shop": BudgetAccount(101.0, 100.0, 200.0, "freeze")}
    facts = replace(GROUND, accounts=accounts, terms={"shop": TenantTerms(budget_per_month=100.0)}, currency="CHF")
    for key in (SHOP, SEARCH, RANK):
        statement_found = statement(facts, key, "WithinBudget")
        assert (statement_found.status, statement_found.reason) == ("False", "OverBudget")
        assert statement_found.message.startswith("shop has spent the budget of 100 CHF a month; ")
        assert statement_found.message.endswith("its services keep what they have and get no more")
    assert not [
        statement
        for statement in make_statements(facts)[Key(Kind.SERVICE, "lab", "alone")]
        if statement.type == "WithinBudget"
    ]


def test_a_tenant_says_whether_it_has_borrowed_or_had_to_give_back() -> None:
    facts = replace(GROUND, terms={"shop": TenantTerms(1.0)}, used={"shop": GpuUsage(1.2)})
    assert statement(facts, SHOP, "Entitled").reason == "Borrowing"
    cut = replace(facts, limits={"shop": Limit(1.1)})
    assert (statement(cut, SHOP, "Entitled").status, statement(cut, SHOP, "Entitled").reason) == ("False", "Reclaimed")
    own = replace(facts, terms={"shop": TenantTerms(2.0, Limit(2.0))}, limits={"shop": Limit(2.0)})
    assert statement(own, SHOP, "Entitled").status == "True"
