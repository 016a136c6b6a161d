"""Plans over REST: history, reasons, differences, what operators say, and what tenants see of it all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from app.control.answer.replay import Record
from app.store.database.urls import libpq_url
from tests.support.forked import ROOT
from tests.support.patience import patience
from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer
from tests.support.server import Reply

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fleet(postgres: DatabaseServer) -> Iterator[Planned]:
    with planned_fleet(postgres) as planned:
        yield planned


@pytest.fixture(scope="module")
def tenant(fleet: Planned) -> str:
    return fleet.server.token("operator", tenant="shop")


def ask(fleet: Planned, path: str, token: str | None = None) -> Any:
    reply = fleet.server.request("GET", path, token=token)
    assert reply.status == 200, reply.text
    return reply.json


def test_the_history_leads_to_each_plan_in_the_contracts_words(fleet: Planned) -> None:
    newest = ask(fleet, "/api/v1/plans?limit=1")["items"][0]
    plan = ask(fleet, f"/api/v1/plans/{newest['generation']}")
    assert plan == ask(fleet, "/api/v1/plans/current")
    assert {"instances", "jobs", "unserved", "unplaced", "changes", "certificate", "heldBack"} <= plan.keys()
    assert plan["certificate"]["cost"] == newest["cost"]
    assert {one["service"] for one in plan["instances"]} >= {"shop/a", "shop/b", "shop/c"}
    assert plan["unserved"][0]["reason"]


def test_what_other_planners_would_pay_is_read_by_sql_as_by_rest(fleet: Planned) -> None:
    listed = ask(fleet, "/api/v1/plans")["items"]
    plans = (ask(fleet, f"/api/v1/plans/{one['generation']}") for one in listed)
    plan = next(one for one in plans if (one["certificate"] or {}).get("otherPlanners"))
    with psycopg.connect(libpq_url(fleet.server.database_url)) as connection:
        rows = connection.execute(
            "SELECT generation, planner, cost_per_hour, churn_cost, served_share, refused, age_seconds >= 0 "
            "FROM report.other_planners"
        ).fetchall()
    others = plan["certificate"]["otherPlanners"]
    assert len(others) > 3
    for row, one in zip(rows, others, strict=True):
        assert row[:2] == (plan["generation"], one["planner"])
        assert row[5:] == (one["refused"], True)
        if one["resourceCost"] is None:
            assert row[2:5] == (None, None, None)
        else:
            told = [float(value) for value in row[2:5]]
            assert told == pytest.approx([one["resourceCost"], one["churnCost"], one["servedShare"]], abs=1e-6)


def test_a_drained_node_is_explained_with_who_drains_it_and_a_tenant_explains_only_itself(
    fleet: Planned, tenant: str
) -> None:
    fleet.server.request("POST", "/api/v1/nodes/node-1/cordon", {"gpu": 0, "message": "a fan is loud"})
    node = ask(fleet, "/api/v1/explain/nodes/node-1")
    fleet.server.request("POST", "/api/v1/nodes/node-1/uncordon", {})
    assert next(limit for limit in node["limits"] if "a fan is loud" in limit).startswith(
        "plans place nothing new on GPU 0, asked by "
    )
    own = ask(fleet, "/api/v1/explain/tenants/shop", tenant)
    plan = ask(fleet, "/api/v1/plans/current", tenant)
    assert own["instances"] == len(plan["instances"]) > 0
    for path in ("/api/v1/explain/tenants/lab", "/api/v1/explain/tenants/nosuch"):
        assert fleet.server.request("GET", path, token=tenant).status == 404
    assert fleet.server.request("GET", "/api/v1/explain/nodes/node-1", token=tenant).status == 403


def test_a_difference_is_told_service_by_service(fleet: Planned) -> None:
    generation = ask(fleet, "/api/v1/plans/current")["generation"]
    told = ask(fleet, f"/api/v1/plans/{generation}/diff?against=0")
    assert all(line["reasons"] for line in told["services"])
    words = {one["service"]: one["words"] for one in told["services"]}
    assert words["shop/a"] == "0 -> 1 instances: 1 started"
    nothing = ask(fleet, f"/api/v1/plans/{generation}/diff?against={generation}")
    assert [one for one in nothing["services"] if "started" in one["words"]] == []


def test_the_record_of_a_plan_holds_what_it_was_made_from(fleet: Planned) -> None:
    generation = ask(fleet, "/api/v1/plans/current")["generation"]
    reply = fleet.server.request("GET", f"/api/v1/plans/{generation}/record")
    record = msgspec.json.decode(reply.text, type=Record)
    assert record.generation == generation
    assert {one.name for one in record.snapshot.declared if one.kind == "Service"} == {"a", "b", "c", "x"}
    assert record.drafts[0].counted["work"]


def test_a_tenant_sees_its_own_part_and_the_others_as_numbers(fleet: Planned, tenant: str) -> None:
    whole, own = ask(fleet, "/api/v1/plans/current"), ask(fleet, "/api/v1/plans/current", tenant)
    assert {one["service"] for one in own["instances"]} == {"shop/a", "shop/b", "shop/c"}
    assert own["others"]["tenant"] == "another tenant"
    assert own["others"]["instances"] == len(whole["instances"]) - len(own["instances"]) > 0
    generation = whole["generation"]
    paths = (
        "plans", "plans/current", f"plans/{generation}", f"plans/{generation}/diff", "overview", "slo", "events",
        f"explain/plans/{generation}", "explain/services/shop/a",
    )  # fmt: skip
    for path in paths:
        reply = fleet.server.request("GET", f"/api/v1/{path}", token=tenant)
        assert reply.status == 200, (path, reply.text)
        assert "lab" not in reply.text, path
    said = ask(fleet, f"/api/v1/explain/plans/{generation}", tenant)["sentences"]
    assert said[0].endswith(f"; it has {len(own['instances'])} instances and 0 jobs of shop")
    assert fleet.server.request("GET", "/api/v1/explain/services/lab/x", token=tenant).status == 404
    assert fleet.server.request("GET", "/api/v1/explain/instances/lab/x/1", token=tenant).status == 404


def test_a_service_and_its_instances_say_why(fleet: Planned) -> None:
    said = ask(fleet, "/api/v1/explain/services/shop/a")
    text = "\n".join(said["sentences"])
    for part in ("why this GPU: ", "why this batch: ", "why this share: ", "why not cheaper: "):
        assert part in text
    instance = said["instances"][0]["id"]
    assert ask(fleet, f"/api/v1/explain/instances/{instance}")["instance"]["id"] == instance
    headroom = said["headroom"]
    above = headroom["plannedPerSecond"] - headroom["arrivingPerSecond"]
    assert sum(part["ratePerSecond"] for part in headroom["parts"]) == pytest.approx(max(0.0, above))
    assert headroom["keptBy"] == "load"
    assert "the load that arrives needs it" in text
    generation = ask(fleet, "/api/v1/plans/current")["generation"]
    assert ask(fleet, f"/api/v1/explain/services/shop/a?plan={generation}")["headroom"] is None
    unserved = ask(fleet, "/api/v1/explain/services/lab/x")["unserved"]
    assert unserved["reason"]
    assert unserved["relaxation"]
    assert unserved["proved"] is True
    assert ask(fleet, "/api/v1/explain/plans/0")["lately"]


def test_what_is_not_there_is_not_found(fleet: Planned) -> None:
    for path in (
        "plans/999", "plans/999/diff", "plans/999/record", "explain/plans/999", "explain/services/shop/none",
        "explain/jobs/shop/none", "explain/instances/none", "explain/services/shop/a?plan=999",
    ):  # fmt: skip
        assert fleet.server.request("GET", f"/api/v1/{path}").status == 404, path


def everything(fleet: Planned) -> dict[str, Any]:
    """Every row of every table."""
    with psycopg.connect(libpq_url(fleet.server.database_url)) as connection:
        tables = [row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        return {
            name: connection.execute(f'SELECT array_agg(t::text ORDER BY t::text) FROM "{name}" t').fetchone()
            for name in tables
            if name not in ("token", "idempotency")
        }


def what_if(fleet: Planned, query: str, body: Any = None) -> Reply:
    return fleet.server.request("POST", f"/api/v1/whatif?work=2&{query}", body if body is not None else b"")


def test_a_what_if_compares_and_touches_nothing(fleet: Planned) -> None:
    before = everything(fleet)
    for query in (
        "addGpu=v100-16gb%3D4",
        "slo=shop/a%3D240ms",
        "rate=shop/a%3Dx2",
        "risk=0.01",
        "priceSlo=shop/a&seconds=3",
        "divide=true",
    ):
        reply = what_if(fleet, query)
        assert reply.status == 200, reply.text
        assert reply.json["sentences"]
    assert "leastChange" not in what_if(fleet, "priceSlo=shop/a&seconds=3").json
    points = what_if(fleet, "leastChange=true&seconds=3").json["leastChange"]
    assert [point["most"] for point in points] == [0, 3, 10, None]
    more = what_if(fleet, "addGpu=v100-16gb%3D4").json
    assert more["before"]["gpus"] == 4
    assert more["after"]["unservedCost"] < more["before"]["unservedCost"]
    gone = fleet.server.request("GET", "/api/v1/services/shop/b").json
    gone["spec"]["ratePerSecond"] = 10.0
    manifest = {key: gone[key] for key in ("apiVersion", "kind", "spec")} | {
        "metadata": {"name": "b", "tenant": "shop"}
    }
    declared = what_if(fleet, "", [manifest]).json
    assert declared["services"][0]["after"]["ratePerSecond"] == 10.0
    assert everything(fleet) == before


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("addGpu=h100%3D1", 422),
        ("addGpu=v100-16gb", 400),
        ("divide=perhaps", 422),
        ("addGpu=v100-16gb%3D0", 400),
        ("addGpu=v100-16gb%3D9000&addGpu=h100%3D9000", 400),
        ("slo=shop/a%3D0ms", 400),
        ("slo=shop/none%3D80ms", 404),
        ("rate=shop/a%3D-1", 400),
        ("risk=0", 400),
        ("risk=0.51", 400),
        ("risk=much", 400),
        ("risk=0.1&risk=0.2", 400),
        ("risk=shop/a%3D1", 400),
        ("risk=shop/none%3D0.1", 404),
        ("seconds=1000", 422),
        ("nothing=1", 400),
    ],
)
def test_a_what_if_that_makes_no_sense_is_refused_by_name(fleet: Planned, query: str, status: int) -> None:
    reply = what_if(fleet, query)
    assert reply.status == status, reply.text


def test_a_what_if_says_that_a_service_is_named_with_its_tenant(fleet: Planned) -> None:
    assert "allowed: TENANT/NAME=VALUE" in what_if(fleet, "rate=a%3Dx2").text
    assert "allowed: NAME=VALUE" in what_if(fleet, "addGpu=v100-16gb").text


def test_a_what_if_at_another_risk_says_that_no_hour_is_known_yet(fleet: Planned) -> None:
    other = what_if(fleet, "risk=0.01&risk=shop/b%3D0.2").json
    risks = {line["service"]: line["after"]["risk"] for line in other["margins"]}
    assert risks == {"shop/a": 0.01, "shop/b": 0.2, "shop/c": 0.01, "lab/x": 0.01}
    assert other["sentences"][-1].startswith("no planned rate changes: margins are learned from 0 hours")
    assert "margins" not in what_if(fleet, "risk=0.05").json  # as it is
    refused = what_if(fleet, "risk=0.7").json["detail"]
    assert refused == "risk '0.7': allowed are shares of hours above 0 and at most 0.5, like 0.05 for 5 % of hours"


def test_the_overview_says_what_services_cost_and_who_leads(fleet: Planned) -> None:
    told = ask(fleet, "/api/v1/overview")
    by_name = {one["service"]: one for one in told["services"]}
    assert by_name["shop/a"]["instances"] == 1
    cost = ask(fleet, "/api/v1/plans/current")["certificate"]["resourceCost"]
    assert sum(one["pricePerHour"] for one in told["services"]) == pytest.approx(cost)
    assert len(told["gpus"]) == 4
    assert told["leader"]["holder"] == "simulation"
    assert told["plan"]["generation"] == told["decisions"][0]["generation"]


def test_the_overview_names_gpus_that_are_held_and_not_planned(fleet: Planned) -> None:
    assert ask(fleet, "/api/v1/overview")["leaving"] == []
    copy = {"instance": "gone-1", "gpu": 7, "smPercent": 40, "memoryGib": 2, "stage": "draining"}
    with psycopg.connect(fleet.server.database_url) as connection:
        row = connection.execute("SELECT detail FROM node_detail WHERE node = 'node-0'").fetchone()
        assert row
        changed = {**row[0], "copies": [*row[0].get("copies", ()), copy]}
        change = "UPDATE node_detail SET detail = %s WHERE node = 'node-0'"
        connection.execute(change, [json.dumps(changed)])
        connection.commit()
        told = ask(fleet, "/api/v1/overview")
        connection.execute(change, [json.dumps(row[0])])
    assert told["leaving"] == [{"node": "node-0", "gpu": 7, "smPercent": 40, "memoryGib": 2}]
    assert len(told["gpus"]) == 4


def test_the_overview_names_silent_nodes_and_counts_their_copies_apart(fleet: Planned) -> None:
    before = ask(fleet, "/api/v1/overview")
    assert before["silent"] == [] and all(each["silentCopies"] == 0 for each in before["services"])
    silence = "UPDATE node_state SET received_at = received_at - CAST(%s AS interval) WHERE node = 'node-0'"
    with psycopg.connect(fleet.server.database_url, autocommit=True) as connection:
        connection.execute(silence, ["10 minutes"])
        told = ask(fleet, "/api/v1/overview")
        connection.execute(silence, ["-10 minutes"])
    (silent,) = told["silent"]
    assert silent["node"] == "node-0" and silent["since"] < before["plan"]["at"]
    there = sum(each["silentCopies"] for each in told["services"])
    assert there > 0
    assert (
        sum(each["routed"] for each in told["services"]) == sum(each["routed"] for each in before["services"]) - there
    )


def test_news_displace_no_alarm_from_the_overview(fleet: Planned) -> None:
    from app.store.database.database import Database
    from app.store.world import events

    alarm = events.NewEvent("solver_crashed", "alarm", "the solver's process ended with SIGKILL")
    missed = events.NewEvent("slo_missed", "warning", "too many requests are late", "Service", "shop", "a")
    news = [events.NewEvent("planned", "info", "start 1 instance", "Plan", "", f"p{number}") for number in range(20)]
    database = Database(fleet.server.database_url, pool_size=1)
    database.write(lambda connection: events.record(connection, [alarm, missed, *news]))
    told = ask(fleet, "/api/v1/overview")["events"]
    assert told[0]["reason"] == "solver_crashed" and {event["severity"] for event in told} <= {"alarm", "warning"}
    assert ("slo_missed", "Service", "shop", "a") in {(e["reason"], e["kind"], e["tenant"], e["name"]) for e in told}


BARE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "numba", "highspy", "ortools"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
import json
from app.api.answers import overview
from app.store.database.database import Database

database = Database(sys.argv[1], pool_size=1)
print(json.dumps(database.read(lambda connection: overview._whole(connection, "", {})), default=str))
"""


def test_the_overview_tells_what_services_cost_also_where_the_solvers_are_not_installed(fleet: Planned) -> None:
    program = [sys.executable, "-c", BARE, fleet.server.database_url]
    told = json.loads(subprocess.run(program, cwd=ROOT, check=True, capture_output=True, timeout=patience()).stdout)
    usual = ask(fleet, "/api/v1/overview")
    prices, usual_prices = (
        {one["service"]: one["pricePerHour"] for one in found["services"]} for found in (told, usual)
    )
    assert prices == usual_prices and None not in prices.values()
    assert told["leftOut"] == usual["leftOut"] == [] and told.keys() == usual.keys()


def test_attainment_is_told_of_every_service(fleet: Planned) -> None:
    items = {one["service"]: one for one in ask(fleet, "/api/v1/slo")["items"]}
    assert set(items) == {"shop/a", "shop/b", "shop/c", "lab/x"}
    assert {"attainment", "burnRates", "budgetLeft", "alarm"} <= items["shop/a"].keys()
