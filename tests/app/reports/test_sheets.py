"""CSV of reports: exact, safe in a spreadsheet, and in FOCUS's columns."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.reports import sheets
from app.store.money.report_queries import REPORTS, ReportQuery

MARCH = datetime(2026, 3, 28, 23, tzinfo=UTC)  # midnight in Berlin, before the clocks go forward


def charge(**changed: Any) -> dict[str, Any]:
    row = {
        "period": MARCH, "tenant": "shop", "service": "search", "job": "", "node": "node-1", "gpu_type": "a100",
        "region": "eu", "purchase": "spot", "kind": "used", "cost": Decimal("0.000000001"), "gpu_hours": Decimal("1.5"),
    }  # fmt: skip
    return {**row, **changed}


def asked(grain: str) -> ReportQuery:
    return ReportQuery("cost", sheets.FOCUS_BY, grain, MARCH, MARCH, zone="Europe/Berlin")


def read(lines: Any) -> list[dict[str, str]]:
    return list(csv.DictReader("".join(lines).splitlines()))


def test_money_is_written_to_its_last_digit() -> None:
    (row,) = read(sheets.focus(asked("day"), [charge(cost=Decimal("1E-9"))], "EUR"))
    assert row["BilledCost"] == "0.000000001"
    assert row["BillingCurrency"] == "EUR"


@pytest.mark.parametrize(
    ("grain", "began", "ends"),
    [
        ("day", MARCH, "2026-03-29T22:00:00Z"),  # a day of 23 hours
        ("hour", datetime(2026, 3, 29, 0, tzinfo=UTC), "2026-03-29T01:00:00Z"),
        ("month", datetime(2026, 11, 30, 23, tzinfo=UTC), "2026-12-31T23:00:00Z"),
    ],
)
def test_a_charge_ends_when_the_next_one_begins_by_its_zones_clocks(grain: str, began: datetime, ends: str) -> None:
    (row,) = read(sheets.focus(asked(grain), [charge(period=began)], "EUR"))
    assert row["ChargePeriodEnd"] == ends


MANDATORY = (  # by FOCUS 1.3, and never empty
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost",
    "HostProviderName", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName",
    "PublisherName", "ServiceCategory", "ServiceName", "ServiceProviderName",
)  # fmt: skip


@pytest.mark.parametrize("purchase", ["owned", "reserved", "onDemand", "spot"])
def test_a_charge_has_what_focus_demands_and_its_unit_price_makes_its_cost(purchase: str) -> None:
    (row,) = read(sheets.focus(asked("day"), [charge(purchase=purchase, cost=Decimal("0.7"))], "EUR"))
    assert all(row[name] for name in MANDATORY)
    assert row["ChargeClass"] == ""
    assert round(Decimal(row["ListUnitPrice"]) * Decimal(row["PricingQuantity"]), 12) == Decimal(row["ListCost"])
    assert row["SkuPriceId"] == f"a100/{purchase}/eu"
    paid = {"owned": "Standard", "reserved": "Other", "onDemand": "Standard", "spot": "Dynamic"}
    assert row["PricingCategory"] == paid[purchase]


def test_a_charge_without_hours_has_no_unit_price_and_one_that_nobody_holds_no_account() -> None:
    (row,) = read(sheets.focus(asked("day"), [charge(kind="idle", gpu_hours=Decimal(0))], "EUR"))
    assert (row["ListUnitPrice"], row["SubAccountId"], row["SubAccountName"], row["SubAccountType"]) == ("", "", "", "")


def test_the_billing_period_is_the_zones_month() -> None:
    (row,) = read(sheets.focus(asked("day"), [charge()], "EUR"))
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z")


def test_the_tokens_of_a_service_stand_on_each_of_its_charges_and_on_no_other() -> None:
    charges = [charge(), charge(node="node-2"), charge(service="rank"), charge(tenant="lab"), charge(service="")]
    counted = {"tokens_in": Decimal(40), "tokens_out": Decimal(9), "cost_per_million_tokens_out": Decimal("2.5")}
    silent = {"tokens_in": Decimal(0), "tokens_out": Decimal(0), "cost_per_million_tokens_out": None}
    of = {"period": MARCH, "tenant": "shop"}
    tokens = [{**of, "service": "search", **counted}, {**of, "service": "rank", **silent}]
    rows = read(sheets.focus(asked("day"), charges, "EUR", tokens))
    names = ("ConsumedUnit", "x_ServiceTokensIn", "x_ServiceTokensOut", "x_CostPerMillionTokensOut")
    known, unknown = ("GPU Hours", "40", "9", "2.5"), ("GPU Hours", "", "", "")
    assert [tuple(row[name] for name in names) for row in rows] == [known, known, unknown, unknown, unknown]


def test_idle_gpus_are_charges_too_and_amounts_may_be_negative() -> None:
    idle = charge(tenant="", service="", kind="idle", cost=Decimal(-1))
    (row,) = read(sheets.focus(asked("day"), [idle], "EUR"))
    assert (row["ServiceName"], row["BilledCost"]) == ("__idle__", "-1")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_no_name_becomes_a_formula(name: str) -> None:
    assert sheets.cell(name) == f"'{name}"


def test_a_negative_amount_stays_a_number() -> None:
    assert sheets.cell(Decimal("-1.5")) == "-1.5"


def test_a_sheet_has_the_columns_that_were_asked_for() -> None:
    cost = REPORTS["cost"]
    row = {**charge(), **dict.fromkeys(cost.values, Decimal(1))}
    day = ReportQuery("cost", ("service",), "day", MARCH, MARCH)
    (line,) = read(sheets.sheet(day, cost, [row]))
    assert list(line) == ["period", "service", *cost.values]
    assert sheets.following(MARCH.astimezone(ZoneInfo("UTC")), "hour") == datetime(2026, 3, 29, 0, tzinfo=UTC)
