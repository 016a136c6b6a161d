"""The page put together from what was read: what is wrong first, and small however large the fleet."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from app.api.plans.plan_wire import NOTHING
from app.console.boxes import HUES, NodeLook, assign_hues, draw, group_by_gpu
from app.console.data import ConsoleData
from app.console.fleet import draw_fleet
from app.console.fleet_page import fleet_values, group_events
from app.console.frame import PageFrame
from app.console.money import Money, summarize_money
from app.console.node_page import describe_node
from app.console.page_request import FleetQuery, ServicesQuery, read_fleet_query, read_services_query
from app.console.pages.service import ServiceHistory
from app.console.rendering import render
from app.console.services import ServiceRow, count_served, make_page, make_rows
from app.console.trouble import find_troubles
from app.console.wording import THIN, age, money, number, percent
from app.control.tell.token_shares import TokenShares
from app.store.database.lease import Lease
from app.store.fleet.fleet_map import MapNode, ReportedCopy
from app.store.world.events import RecordedEvent
from tests.app.console.charts.full import full_charts, full_node_page

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOW = FleetQuery()
TABLE = ServicesQuery()
FRAME = PageFrame(AT)
# Nothing was done, and nothing may be.
QUIET: dict[str, Any] = {
    "may_ask": False,
    "said": "",
    "refused": None,
    "form": "",
    "cordons": [],
}  # nothing was done, and nothing may be
LEADER = Lease("planner-1", 3, 7, AT, AT + timedelta(seconds=10), True)
MOST_BYTES = 300_000
CHARTS = full_charts(AT)
NODE_PAGE = full_node_page(AT)
NO_SHARES = TokenShares()


def node(name: str, gpus: int = 4, silent_seconds: float = 3.0, ailing: tuple[int, ...] = ()) -> MapNode:
    wrong = [{"index": index, "health": "failed", "reason": "xid_79"} for index in ailing]
    return MapNode(name, "l4-24gb", gpus, AT - timedelta(seconds=silent_seconds), wrong)


def instance(service: str, on: str, gpu: int, sm_percent: int = 25) -> dict[str, Any]:
    return {
        "id": f"{service}/1", "service": service, "node": on, "gpu": gpu, "variant": "fp16", "batch": 8,
        "smPercent": sm_percent, "memoryGib": 3.0, "ratePerSecond": 100.0, "predicted": {"latencyMs": 41.0},
    }  # fmt: skip


def service(name: str, **fields: Any) -> dict[str, Any]:
    known = {
        "service": name, "ratePerSecond": 90.0, "plannedPerSecond": 100.0, "unservedPerSecond": 0.0, "attained": 0.99,
        "burnRate": 0.4, "budgetLeft": 1.0, "sloMs": 80.0, "percentile": 98.0, "latencyMs": 41.0, "instances": 2,
        "routed": 2, "silentCopies": 0, "pricePerHour": 0.8, "tpotMs": None,
    }  # fmt: skip
    return known | fields


def planned(**body: Any) -> Any:
    return {**NOTHING, **body}


def seen(services: Any, nodes: list[MapNode], **body: Any) -> ConsoleData:
    plan: Any = {"generation": 7, "state": "done", "reason": "cycle", "message": None}
    return ConsoleData(
        at=AT, services=services, nodes=nodes, memory_gib={"l4-24gb": 24.0}, plan=plan, body=planned(**body),
        leader=LEADER,
    )  # fmt: skip


def page(data: ConsoleData, booked: Money, query: FleetQuery) -> str:
    return render("fleet_page.html", frame=FRAME, charts=CHARTS, **fleet_values(data, booked, query))


def table(data: ConsoleData, query: ServicesQuery = TABLE) -> str:
    rows = make_rows(data)
    values: dict[str, Any] = {"services": make_page(rows, query), "total": len(rows), "money": Money()}
    return render("services.html", frame=FRAME, query=query, **values)


def service_page(row: ServiceRow, shares: TokenShares = NO_SHARES) -> str:
    values: dict[str, Any] = {"history": ServiceHistory(shares, [], []), "charts": CHARTS, "shares": []}
    more: dict[str, Any] = {"instances": [], "more": 0, "currency": "EUR", "may_price": False}
    return render("service.html", frame=FRAME, service=row, **values, **more)


def said(whole: ConsoleData) -> list[tuple[str, str]]:
    return [(one.severity, one.text) for one in find_troubles(whole, make_rows(whole), draw_fleet(whole, NOW))]


def test_nothing_is_wrong_where_nothing_is() -> None:
    whole = seen([service("shop/a")], [node("n-1")], instances=[instance("shop/a", "n-1", 0)])
    assert said(whole) == []
    assert "Nothing needs attention" in page(whole, Money(), NOW)


def test_a_job_whose_saves_are_elsewhere_asks_for_attention() -> None:
    missing = RecordedEvent(
        1, AT, AT, 1, "job_saves_missing", "warning", "Job", "lab", "tune", "at 5: 475 had been saved elsewhere", None
    )
    whole = replace(seen([service("shop/a")], [node("n-1")]), events=[missing])
    assert said(whole) == [("warning", "1 job was placed where earlier saves are not")]


def test_a_node_page_shows_copies_that_are_not_planned_there_any_more() -> None:
    whole = seen([service("shop/a")], [node("n-1")], instances=[instance("shop/a", "n-1", 0)])
    copies = [
        ReportedCopy("n-1", 0, "shop/a", 25.0, "ready"), ReportedCopy("n-1", 1, "shop/b", 25.0, "draining"),
        ReportedCopy("n-1", 2, "", 25.0, "ready"),
    ]  # fmt: skip
    described = describe_node(replace(whole, copies=copies), {})
    assert [gpu.leaving for gpu in described.gpus] == [(), ("shop/b (draining)",), ("an unknown copy (ready)",), ()]
    drawn = render("node.html", frame=FRAME, node=described, events=[], **QUIET, **NODE_PAGE)
    assert "leaving: shop/b (draining)" in drawn


def test_unserved_services_come_first_then_silent_nodes_then_what_can_wait() -> None:
    services = [
        service("shop/late", attained=0.9, burnRate=5.0),
        service("shop/none", unservedPerSecond=40.0, instances=0, plannedPerSecond=0.0),
    ]
    nodes = [node("n-1"), node("n-2", silent_seconds=600), node("n-3", ailing=(2,))]
    assert said(seen(services, nodes)) == [
        ("alarm", "1 service is not fully served, 40 requests a second short"),
        ("alarm", "1 node is silent"),
        ("alarm", "1 GPU is unhealthy"),
        ("warning", "1 service is below the SLO in the last 30 minutes"),
    ]


def test_the_proof_is_shown_while_a_node_has_never_reported_and_not_while_one_has_fallen_silent() -> None:
    new = replace(node("n-2"), received_at=None)
    assert draw_fleet(seen([], [node("n-1"), new]), FleetQuery()).is_known
    assert not draw_fleet(seen([], [node("n-1", silent_seconds=600), new]), FleetQuery()).is_known


def test_nodes_that_are_drained_or_cordoned_ask_for_attention_and_look_so() -> None:
    nodes = [
        node("n-1"),
        replace(node("n-2"), closed="drain", closed_at=AT - timedelta(minutes=7)),
        replace(node("n-3"), closed="cluster", closed_at=AT - timedelta(minutes=2), closed_gpus=(1,)),
    ]
    whole = seen([service("shop/a")], nodes, instances=[instance("shop/a", "n-1", 0)])
    assert said(whole) == [("warning", "2 nodes are closed: plans put nothing new there")]
    (line,) = find_troubles(whole, make_rows(whole), draw_fleet(whole, NOW))
    assert [subject.words for subject in line.subjects] == [
        f"drained for 7{THIN}min",
        f"drained by its cluster for 2{THIN}min",
    ]
    drawn = page(whole, Money(), NOW)
    assert drawn.count('class="closed"') == 2
    assert "n-2: drained; 4 GPUs" in drawn
    assert "1 closed: empty" in drawn


def test_nodes_under_notice_are_named_with_the_time_that_is_left_and_their_silence_is_expected() -> None:
    def at(seconds: float) -> str:
        return (AT + timedelta(seconds=seconds)).isoformat()

    nodes = [
        node("n-1"),
        replace(node("n-2"), reclaim_at=at(50)),
        replace(node("n-3", silent_seconds=120), reclaim_at=at(-80)),
        replace(node("n-4", silent_seconds=120), reclaim_at=at(20)),
    ]
    whole = seen([], nodes)
    assert draw_fleet(whole, NOW).reclaimed == (
        ("n-3", f"80{THIN}s ago"), ("n-4", f"in 20{THIN}s"), ("n-2", f"in 50{THIN}s")
    )  # fmt: skip
    assert said(whole) == [("alarm", "1 node is silent"), ("warning", "3 nodes are to be reclaimed")]
    chosen = describe_node(replace(whole, nodes=[node for node in nodes if node.name == "n-2"]), {})
    assert f"to be reclaimed in 50{THIN}s" in render(
        "node.html", frame=FRAME, node=chosen, events=[], **QUIET, **NODE_PAGE
    )


def test_where_not_one_node_is_heard_the_server_is_suspected_too() -> None:
    whole = seen([], [node("n-1", silent_seconds=600), node("n-2", silent_seconds=900)])
    assert "the fault may be this server's" in said(whole)[0][1]


def test_a_planner_that_is_gone_or_fails_is_said() -> None:
    cycle: Any = {"reason": "solver_crashed", "at": AT.isoformat()}
    gone = replace(LEADER, held=False, renewed_at=AT - timedelta(minutes=5))
    whole = replace(seen([], []), leader=gone, cycle=cycle, waiting=8)
    first, *others = said(whole)
    assert first[1].startswith("no planner has led for 5")
    assert others == [("alarm", "the last cycle made no plan"), ("warning", "plan 8 waits for approval")]


def test_each_silent_node_is_a_link_and_a_tenants_jobs_without_a_place_need_attention() -> None:
    whole = seen([], [node(f"n-{number}", silent_seconds=600) for number in range(5)] + [node("n-9")])
    html = page(whole, Money(), NOW)
    for name in ("n-0", "n-1", "n-2"):
        assert f'<a href="/nodes/{name}">{name}</a> (for 10{THIN}min)' in html
    assert "and 2 more" in html
    body = planned(unplaced=[{"job": "shop/train", "reason": "no room"}])
    own = replace(seen([], []), tenant="shop", body=body)
    assert said(own) == [("warning", "1 job has no place")]
    assert '<a href="/jobs?name=shop/train">shop/train</a>' in page(own, Money(), NOW)


def test_a_box_is_filled_from_below_and_never_beyond_its_top() -> None:
    residents = [instance(f"shop/{name}", "n-1", 0, share) for name, share in (("a", 50), ("b", 30), ("c", 60))]
    drawn = draw_fleet(seen([], [node("n-1", gpus=1)], instances=residents), NOW).groups[0].drawn[0]
    heights = [float(height) for _, path in drawn.paths for height in re.findall(r"h13v-([\d.]+)", path)]
    assert (max(heights), sum(heights)) == (12.0, 20.0)
    assert "SM 140" in drawn.label


def test_a_failed_gpu_is_crossed_out_and_a_large_node_is_cut_short() -> None:
    drawn = draw(NodeLook("n-1", 100_000, ailing=(1,)), "n-", (), 24.0, 60, ())
    assert dict(drawn.paths)["x"].startswith("M20 0")
    assert (drawn.short, drawn.tooltip.count("\n"), drawn.more) == ("1", 63, 99_936)


def test_a_tenant_is_drawn_the_gpus_that_it_runs_on_and_no_others() -> None:
    whole = replace(seen([], [node("n-1", gpus=0)], instances=[instance("shop/a", "n-1", 3)]), tenant="shop")
    drawn = draw_fleet(whole, NOW).groups[0].drawn[0]
    assert drawn.tooltip == "3: shop/a 25"


def test_an_slo_of_tokens_is_shown_with_both_promises_and_in_full_with_the_share_that_kept_each() -> None:
    services = [service("shop/chat", sloMs=2000.0, tpotMs=60.0, percentile=95.0), service("shop/a", tpotMs=None)]
    data = seen(services, [])
    html = table(data).replace(THIN, " ")
    assert "95 % in 2 000 ms, 60 ms a token</td>" in html
    assert "98 % in 80 ms</td>" in html
    chat, other = (service_page(row, TokenShares(0.9625, 0.981)).replace(THIN, " ") for row in make_rows(data))
    assert "SLO 95 % within 2 000 ms, 60 ms a token · planned" in chat
    assert "96.25 % of first tokens came within 2 000 ms, and 98.10 % of answers kept 60 ms a token" in chat
    assert "of first tokens" not in other


def test_what_is_worst_is_listed_first_and_pages_are_short() -> None:
    services = [service(f"shop/s{n:03}") for n in range(100)]
    services += [service("shop/late", attained=0.5), service("shop/quiet", attained=None, ratePerSecond=None)]
    found = make_page(make_rows(seen(services, [])), TABLE)
    assert (found.rows[0].name, found.found, found.pages, len(found.rows)) == ("shop/late", 102, 3, 40)
    last = read_services_query({"page": "99", "sort": "name"})
    assert make_page(make_rows(seen(services, [])), last).rows[-1].name == "shop/s099"


def test_a_service_whose_rules_the_fleet_cannot_keep_now_says_so() -> None:
    why = "the fleet is too small for its availability now"
    held = [{"service": "shop/a", "reason": "too_few_gpus", "message": why}]
    held += [{"service": "shop/b", "reason": "cordoned", "message": "elsewhere"}]
    whole = seen([service("shop/a"), service("shop/b")], [node("n1")], heldBack=held)
    assert {row.name: row.short for row in make_rows(whole)} == {"shop/a": why, "shop/b": ""}
    assert why in service_page(make_rows(whole)[0])


def test_the_same_that_befell_many_is_one_line() -> None:
    events = [
        RecordedEvent(
            n, AT, AT + timedelta(seconds=n), 2, "burn_fast", "alarm", "Service", "shop", f"s{n}", f"m{n}", None
        )
        for n in range(50)
    ]
    (line,) = group_events(events)
    assert (line.times, line.names, line.more, line.message) == (100, ("shop/s0", "shop/s1", "shop/s2"), 47, "m49")


def test_money_is_what_is_booked_and_savings_are_the_least_that_a_baseline_says() -> None:
    assert summarize_money("EUR", [], [], []) == Money("EUR")
    cost = [
        {"tenant": "shop", "service": "a", "cost": Decimal("1.000000001")},
        {"tenant": "__idle__", "service": "", "cost": Decimal("2.5")},
    ]
    savings = [{"baseline": "hetsev", "saved": Decimal("3.25")}, {"baseline": "largest", "saved": Decimal(9)}]
    found = summarize_money("EUR", cost, savings, [{"saved": None}])
    assert (found.today, found.by_service) == (Decimal("3.500000001"), {"shop/a": Decimal("1.000000001")})
    assert (found.saved, found.against, found.realised) == (Decimal("3.25"), "hetsev", None)
    shown = page(seen([service("shop/a")], []), found, NOW)
    assert "Saved today, compared with hetsev" in shown
    assert "Realised" not in shown
    assert "Saved" not in page(seen([], []), Money("EUR"), NOW)


def test_numbers_are_short_and_a_share_that_is_not_whole_is_not_said_to_be() -> None:
    thin = "\N{NARROW NO-BREAK SPACE}"
    assert [number(one) for one in (None, 0.42, 56.78, 1234.5)] == ["\N{EN DASH}", "0.4", "56.8", f"1{thin}234"]
    assert percent(0.999999, 2) == f"99.99{thin}%"
    assert (percent(1.0), money(1056.8)) == (f"100.0{thin}%", f"1{thin}056.80")
    assert [age(one) for one in (40, 190, 7200, 400_000)] == [f"40{thin}s", f"3{thin}min", f"2{thin}h", f"4{thin}d"]


def large(nodes: int, gpus: int) -> ConsoleData:
    """300 services with names and reasons as long as they come, three instances on each GPU."""
    names = [f"tenant-{n % 20:02}/service-with-a-long-name-{n:04}" for n in range(300)]
    instances = [
        instance(names[(n * gpus + gpu + k) % 300], f"h100-sxm-80gb-{n:04}", gpu, 30)
        for n in range(nodes)
        for gpu in range(gpus)
        for k in range(3)
    ]
    short = [{"service": name, "ratePerSecond": 9.0, "reason": "r" * 200, "relaxation": "c" * 100} for name in names]
    services = [service(name, unservedPerSecond=9.0) for name in names]
    fleet = [node(f"h100-sxm-80gb-{n:04}", gpus, 100.0 if n % 2 else 1.0, (0,)) for n in range(nodes)]
    whole = seen(services, fleet, instances=instances, unserved=short, heldBack=[], changes={"start": 9})
    event = RecordedEvent(1, AT, AT, 1, "planned", "info", "Plan", "", "p7", "m" * 2000, None)
    return replace(whole, events=[replace(event, id=n, reason=f"reason_{n}") for n in range(600)])


@pytest.mark.slow
def test_a_page_is_small_however_large_the_fleet() -> None:
    for nodes, gpus in ((125, 8), (1000, 1), (1250, 8), (10_000, 1), (2, 5000)):
        whole = large(nodes, min(gpus, 64))
        chosen = read_fleet_query({"service": "tenant-01/service-with-a-long-name-0001"})
        one_node = describe_node(replace(whole, nodes=whole.nodes[:1]), {})
        for name, drawn in (
            ("fleet", page(whole, Money(), chosen)),
            ("services", table(whole)),
            ("node", render("node.html", frame=FRAME, node=one_node, events=[], **QUIET, **NODE_PAGE)),
        ):
            assert len(drawn.encode()) <= MOST_BYTES, (name, nodes, gpus, len(drawn))


def test_served_is_what_is_planned_whole_and_answered_by_a_copy() -> None:
    services = [service("shop/a"), service("shop/b", routed=0, attained=None), service("shop/c", unservedPerSecond=4.0)]
    rows = make_rows(seen(services, [node("n-1")]))
    assert count_served(rows) == 1
    assert {row.name: row.status for row in rows}["shop/b"] == "no copy answers yet"


def test_a_service_keeps_its_colour_whatever_else_is_declared_or_deleted() -> None:
    names = tuple(f"shop/s{number:02}" for number in range(3 * HUES))
    known = assign_hues(names)
    assert {name: assign_hues(("shop/a", name))[name] for name in names} == known
    assert set(known.values()) == {f"c{number}" for number in range(HUES)}


def test_an_unknown_service_to_colour_is_reported_without_being_repeated() -> None:
    whole = seen([service("shop/a")], [node("n-1")])
    text = page(whole, Money(), read_fleet_query({"service": "lab/secret"}))
    assert "There is no service of the name in this address" in text
    assert "secret</" not in text
    assert "There is no" not in page(whole, Money(), read_fleet_query({"service": "shop/a"}))


def test_a_job_on_several_gpus_is_drawn_on_each() -> None:
    job = {"job": "lab/train", "node": "n1", "gpus": [0, 2], "smPercent": 100, "memoryGib": 12.0}
    found = group_by_gpu(planned(jobs=[job]))
    assert {gpu: [each.name for each in there] for gpu, there in found["n1"].items()} == {
        0: ["lab/train"],
        2: ["lab/train"],
    }
