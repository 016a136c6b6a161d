"""Reports over HTTP, on a small history whose sums anyone can check by hand."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.support import history
from tests.support.postgres import DatabaseServer
from tests.support.server import Reply, RunningServer, running_server

NOVEMBER = "from=2026-11-01&to=2026-12-01"


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_CURRENCY="CHF") as running:
        history.write(url)
        yield running
    postgres.drop(url)


def ask(server: RunningServer, path: str, token: str = "") -> Reply:
    reply = server.request("GET", f"/api/v1/reports{path}", token=token or None)
    assert reply.status == 200, reply.text
    return reply


def exact(reply: Reply) -> Any:
    return json.loads(reply.text, parse_float=Decimal, parse_int=Decimal)


def costs(told: Any) -> dict[str, Decimal]:
    return {item["name"]: item["totalCost"] for item in told["items"]}


@pytest.mark.slow
def test_a_months_cost_is_named_and_adds_up_to_what_its_gpus_cost(server: RunningServer) -> None:
    told = exact(ask(server, f"/cost?{NOVEMBER}"))
    assert costs(told) == {
        "shop/search": Decimal("7.8"), "shop/tags": Decimal("1.2"), "lab/finetune": 3, "__idle__": 3,
        "__unallocated__": Decimal("4.2"),
    }  # fmt: skip
    assert told["total"]["totalCost"] == 3 * (4 + 1 + 1 + Decimal("0.4"))
    assert told["total"]["gpuHours"] == 12
    assert told["currency"] == "CHF"
    assert told["window"] == {"start": "2026-11-01T00:00:00.000Z", "end": "2026-12-01T00:00:00.000Z"}


def test_an_hour_belongs_to_the_month_of_the_zone(server: RunningServer) -> None:
    utc = exact(ask(server, f"/cost?by=month&{NOVEMBER}"))
    berlin = exact(ask(server, f"/cost?by=month&{NOVEMBER}&timeZone=Europe/Berlin"))
    assert [item["totalCost"] for item in utc["items"]] == [Decimal("19.2")]
    assert [item["totalCost"] for item in berlin["items"]] == [Decimal("25.6")]
    assert berlin["items"][0]["start"] == "2026-11-01T00:00:00+01:00"


def test_days_add_up_to_the_month(server: RunningServer) -> None:
    days = exact(ask(server, f"/cost?by=node,day&{NOVEMBER}"))
    assert sum(item["totalCost"] for item in days["items"]) == Decimal("19.2")
    assert {item["start"][:10] for item in days["items"]} == {"2026-11-20", "2026-11-21"}


@pytest.mark.slow
def test_gpus_that_nothing_runs_on_are_paid_for_and_not_held(server: RunningServer) -> None:
    """Of 6.40 an hour, 5.00 are for GPUs with copies: a-1/0 and l-1/0."""
    month = exact(ask(server, f"/cost?{NOVEMBER}"))
    assert {item["name"]: item["heldCost"] for item in month["items"]} == {**costs(month), "__unallocated__": 0}
    assert month["total"]["heldCost"] == 3 * (4 + 1)
    days = exact(ask(server, f"/cost?by=day&{NOVEMBER}"))["items"]
    assert [(item["heldCost"], item["totalCost"]) for item in days] == [
        (10, Decimal("12.8")), (5, Decimal("6.4")),
    ]  # fmt: skip
    nodes = exact(ask(server, f"/cost?by=node&{NOVEMBER}"))["items"]
    assert {item["name"]: item["heldCost"] for item in nodes} == {"a-1": 12, "l-1": 3, "l-2": 0}
    lab = exact(ask(server, f"/cost?by=month&{NOVEMBER}", server.token("viewer", tenant="lab")))
    assert lab["total"]["heldCost"] == lab["total"]["totalCost"] == 3


def test_a_tenant_reads_its_own_and_nothing_of_the_fleet(server: RunningServer) -> None:
    lab = server.token("viewer", tenant="lab")
    told = exact(ask(server, f"/cost?{NOVEMBER}", lab))
    assert costs(told) == {"lab/finetune": 3}
    assert "shop" not in json.dumps(told, default=str)
    refused = server.request("GET", "/api/v1/reports/utilisation", token=lab)
    assert refused.status == 403
    assert "whole fleet" in refused.json["detail"]
    assert server.request("GET", "/api/v1/reports/cost?tenant=shop", token=lab).status in (403, 404)


def test_a_sheet_holds_what_the_document_holds(server: RunningServer) -> None:
    sheet = ask(server, f"/cost?by=tenant,day&{NOVEMBER}&format=csv")
    assert sheet.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(sheet.text.splitlines()))
    assert sum(Decimal(row["cost"]) for row in rows) == Decimal("19.2")
    assert set(rows[0]) == {"period", "tenant", "kind", "gpu_hours", "cost", "held_cost", "energy_kwh"}


def test_charges_in_the_columns_of_focus_add_up_too(server: RunningServer) -> None:
    rows = list(csv.DictReader(ask(server, f"/cost?by=hour&{NOVEMBER}&format=focus").text.splitlines()))
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal("19.2")
    assert sum(Decimal(row["ConsumedQuantity"]) for row in rows) == 12
    assert {row["SubAccountId"] for row in rows} == {"", "shop", "lab"}
    days = list(csv.DictReader(ask(server, f"/cost?{NOVEMBER}&format=focus").text.splitlines()))
    assert sum(Decimal(row["BilledCost"]) for row in days) == Decimal("19.2")
    assert len(days) < len(rows)


def test_charges_of_focus_name_the_tokens_of_their_service_and_period(server: RunningServer) -> None:
    counted = "UPDATE service_hour SET tokens_in = %s, tokens = %s WHERE service = 'search' AND hour >= '2026-11-20'"
    with psycopg.connect(server.database_url) as connection:
        connection.execute(counted, (3_000_000, 500_000))
    try:
        days = list(csv.DictReader(ask(server, f"/cost?by=day&{NOVEMBER}&format=focus").text.splitlines()))
        report = exact(ask(server, f"/tokens?by=service,day&{NOVEMBER}"))["items"]
    finally:
        with psycopg.connect(server.database_url) as connection:
            connection.execute(counted, (0, 0))
    names = ("x_ServiceTokensIn", "x_ServiceTokensOut", "x_CostPerMillionTokensOut")
    found = {
        (row["ServiceName"], row["ChargePeriodStart"][:10], *(row[name] and Decimal(row[name]) for name in names))
        for row in days
    }
    search = {line[1:] for line in found if line[0] == "search"}
    assert search == {
        ("2026-11-20", 6_000_000, 1_000_000, Decimal("5.2")), ("2026-11-21", 3_000_000, 500_000, Decimal("5.2")),
    }  # fmt: skip
    assert {line[2:] for line in found if line[0] != "search"} == {("", "", "")}
    assert {item["costPerMillionTokensOut"] for item in report if item["name"] == "shop/search"} == {Decimal("5.2")}


def test_promises_and_savings(server: RunningServer) -> None:
    (search, tags) = exact(ask(server, f"/slo?{NOVEMBER}"))["items"]
    assert (search["name"], tags["name"]) == ("shop/search", "shop/tags")
    assert search["attainment"] == round(Decimal(35640 + 34560 + 18000) / 90000, 6)
    assert search["violationMinutes"] == 12
    assert tags["attainment"] == 1
    saved = exact(ask(server, f"/savings?{NOVEMBER}"))
    assert saved["total"] == {}, "baselines are alternatives: their sum says nothing"
    assert {item["properties"]["baseline"] for item in saved["items"]} != {""}
    assert all(item["saved"] == item["baselineCost"] - item["cost"] for item in saved["items"])
    assert [(item["cost"], item["heldCost"]) for item in saved["items"]] == [(8, 9)] * 3, "more was held than planned"
    lab = exact(ask(server, f"/savings?by=tenant,day&{NOVEMBER}", server.token("viewer", tenant="lab")))
    assert {(item["cost"], item["heldCost"]) for item in lab["items"]} == {(2, Decimal("2.25"))}


@pytest.mark.slow
def test_every_report_that_is_listed_can_be_asked_by_everything_it_names(server: RunningServer) -> None:
    for one in ask(server, "").json["items"]:
        for word in one["by"]:
            told = ask(server, f"/{one['name']}?by={word}&{NOVEMBER}").json
            assert told["report"] == one["name"]
            for item in told["items"]:
                assert set(one["values"]) - {"cost"} <= item.keys() | {"totalCost"}


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/costs", 404, "there is no report 'costs'"),
        ("/cost?by=servise", 400, "did you mean service?"),
        ("/slo?format=focus", 400, "exists for the report cost only"),
        (
            "/cost?by=gpu,hour&format=focus",
            400,
            "by='gpu,hour': format=focus splits charges by time only; allowed: hour, day, month",
        ),
        ("/cost?by=service&format=focus", 400, "or nothing, which is day"),
        ("/utilisation?tenant=shop", 400, "covers the whole fleet; leave out tenant=shop"),
        ("/savings_realised?tenant=shop", 400, "leave out tenant=shop"),
        ("/cost?from=never", 400, "allowed: a date"),
        ("/cost?timezone=UTC", 400, "did you mean timeZone?"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(server: RunningServer, path: str, status: int, said: str) -> None:
    refused = server.request("GET", f"/api/v1/reports{path}")
    assert refused.status == status
    assert said in refused.json["detail"]
