"""Writes reports as CSV: a column per field, or charges in the columns of FOCUS, the FinOps cost and usage format."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from zoneinfo import ZoneInfo

from app.manifests.model import Free
from app.reports.documents import UNHELD_KINDS, utc
from app.store.money.report_queries import MoneyReport, ReportQuery

Row = Free
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets take a cell that begins so for a formula

FOCUS_BY = ("tenant", "service", "job", "node", "gpu_type", "region", "purchase", "kind")
TOKENS_BY = ("tenant", "service")
PAID = {"owned": "Standard", "onDemand": "Standard", "spot": "Dynamic"}  # of a reservation we know no contract
FOCUS_COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
    "CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountName", "CommitmentDiscountStatus",
    "CommitmentDiscountType", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice",
    "EffectiveCost", "HostProviderName", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory",
    "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId",
    "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceProviderName", "ServiceSubcategory",
    "SkuId", "SkuMeter", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags",
    "x_CostPerMillionTokensOut", "x_ServiceTokensIn", "x_ServiceTokensOut",
)  # fmt: skip
OURS, METER = "gpuwright", "GPU Hours"


def sheet(query: ReportQuery, report: MoneyReport, rows: Sequence[Row]) -> Iterator[str]:
    """Yields a heading and a line per row."""
    names = (*(("period",) if query.grain else ()), *query.by, *report.values)
    return lines(names, ([row[name] for name in names] for row in rows))


def focus(query: ReportQuery, rows: Iterable[Row], currency: str, tokens: Iterable[Row] = ()) -> Iterator[str]:
    """Yields the charges of a report by FOCUS_BY and hour, day or month; `tokens` has the same periods by TOKENS_BY."""
    zone = ZoneInfo(query.zone)
    counted = {_make_token_key(row): row for row in tokens if row["tokens_in"] or row["tokens_out"]}
    charges = (charge(row, counted.get(_make_token_key(row), {}), query.grain, zone, currency) for row in rows)
    return lines(FOCUS_COLUMNS, (list(found.values()) for found in charges))


def charge(row: Row, tokens: Row, grain: str, zone: ZoneInfo, currency: str) -> dict[str, object]:
    """Returns a row of cost as a charge. Billed, listed and contracted cost are the same: the price in force.

    What is billed is time on GPUs, so that is the consumed quantity. Tokens are known of a service, not of its nodes:
    they have columns of their own, which repeat the whole service's figures of the period.
    """
    began, cost = row["period"].astimezone(zone), row["cost"]
    hours = row["gpu_hours"] + Decimal("0.0")  # readers take a column of whole numbers for another type
    name = row["service"] or row["job"] or f"__{row['kind']}__"
    month = began.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    holder = "" if row["kind"] in UNHELD_KINDS else row["tenant"]
    known: dict[str, object] = {
        "BilledCost": cost,
        "BillingAccountId": OURS,
        "BillingAccountName": OURS,
        "BillingCurrency": currency,
        "BillingPeriodEnd": following(month, "month"),
        "BillingPeriodStart": month,
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{name} on {row['gpu_type']} of {row['node']}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": following(began, grain),
        "ChargePeriodStart": began,
        "ConsumedQuantity": hours,
        "ConsumedUnit": METER,
        "PricingCategory": PAID.get(row["purchase"], "Other"),
        "PricingQuantity": hours,
        "PricingUnit": METER,
        "RegionId": row["region"],
        "RegionName": row["region"],
        "ResourceId": row["node"],
        "ResourceName": row["node"],
        "ResourceType": row["gpu_type"],
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": name,
        "ServiceSubcategory": "Machine Learning",
        "SkuId": row["gpu_type"],
        "SkuMeter": METER,
        "SkuPriceId": "/".join(str(row[word]) for word in ("gpu_type", "purchase", "region")),
        "SubAccountId": holder,
        "SubAccountName": holder,
        "SubAccountType": "tenant" if holder else "",
        "x_CostPerMillionTokensOut": tokens.get("cost_per_million_tokens_out"),
        "x_ServiceTokensIn": tokens.get("tokens_in"),
        "x_ServiceTokensOut": tokens.get("tokens_out"),
    }
    known |= dict.fromkeys(("ContractedCost", "EffectiveCost", "ListCost"), cost)
    known |= dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), cost / hours if hours else None)
    issuers = ("HostProviderName", "InvoiceIssuerName", "ProviderName", "PublisherName", "ServiceProviderName")
    known |= dict.fromkeys(issuers, OURS)
    return {column: known.get(column, "") for column in FOCUS_COLUMNS}


def _make_token_key(row: Row) -> tuple[datetime, str, str]:
    return row["period"], row["tenant"], row["service"]


def following(began: datetime, grain: str) -> datetime:
    """Returns the beginning of the next hour, day or month, by the clocks of its zone."""
    if grain == "hour":
        return (began.astimezone(UTC) + timedelta(hours=1)).astimezone(began.tzinfo)
    if grain == "day":
        return began + timedelta(days=1)
    return began.replace(year=began.year + began.month // 12, month=began.month % 12 + 1)


def lines(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yields lines of CSV as in RFC 4180."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    for row in chain([names], rows):
        writer.writerow([cell(value) for value in row])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def cell(value: object) -> str:
    """Returns text that no spreadsheet takes for a formula; numbers are exact, without an exponent."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return utc(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA_STARTS) else text
