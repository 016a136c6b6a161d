"""A frame of `gpuwright top`: what runs, what it costs, what was decided, in as many lines as there are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cli.output import age
from cli.views.frame import frame

THEN = "2020-03-01T12:00:00Z"


def service(number: int, **fields: Any) -> dict[str, Any]:
    usual = {
        "service": f"shop/s{number}",
        "ratePerSecond": 123.4,
        "plannedPerSecond": 140.0,
        "unservedPerSecond": 0.0,
        "attained": 0.991,
        "sloMs": 80.0,
        "percentile": 98.0,
        "latencyMs": 71.0,
        "instances": 2,
        "routed": 2,
        "silentCopies": 0,
        "pricePerHour": 1.25,
    }
    return usual | fields


def overview(services: int = 2, **fields: Any) -> dict[str, Any]:
    gpu = {"node": "n-1", "gpu": 0, "smPercent": 50, "memoryGib": 4.0, "services": ["shop/s0"], "jobs": ["lab/j"]}
    plan = {"generation": 7, "state": "rolling", "reason": "load_rose", "at": THEN, "resourceCost": 12.0, "bound": 11.1}
    decided = {"generation": 7, "at": THEN, "lane": "fast", "state": "rolling", "why": "More load.", "message": None}
    return {
        "services": [service(number) for number in range(services)],
        "gpus": [gpu | {"powerW": 120.0, "utilizationPercent": 33.0}],
        "plan": plan | {"gap": 0.081},
        "decisions": [decided | {"changes": {"keep": 9, "start": 1, "move": 0}}],
        "leader": {"holder": "here:1", "epoch": 3, "held": True},
    } | fields


def test_the_head_says_plan_cost_bound_and_leader() -> None:
    first, second, *_ = frame(overview())
    assert first == f"plan 7 is rolling (load rose, {age(THEN)} ago); led by here:1, epoch 3"
    assert second == "cost 12.00/h   bound 11.10/h   gap 8.1 %   services 2 of 2 within their SLO   GPUs in use 1"


def test_money_has_its_currency_once_in_the_head_and_once_in_the_heading() -> None:
    text = "\n".join(frame(overview() | {"money": {"heldPerHour": 13.0}}, currency="CHF"))
    assert "cost 12.00 CHF/h   held 13.00/h   bound 11.10/h" in text and "COST CHF/H" in text
    assert text.count("CHF") == 2


def test_pools_have_a_table_with_their_nodes_money_and_wasted_minutes() -> None:
    money = {"costPerHour": 7.2, "costThisMonth": 84.5, "wastedMinutes": 12.4}
    pool = {"pool": "burst", "nodes": 3, "starting": 1, **money}
    ended = {"pool": "ended", "nodes": 0, "starting": 0, **money, "costPerHour": None}
    lines = frame(overview(pools=[pool, ended]), currency="EUR")
    at = next(at for at, line in enumerate(lines) if line.startswith("POOL"))
    assert lines[at].split() == ["POOL", "NODES", "STARTING", "COST", "EUR/H", "THIS", "MONTH", "EUR", "WASTED", "MIN"]
    assert lines[at + 1].split() == ["burst", "3", "1", "7.20", "84.50", "12"]
    assert lines[at + 2].split() == ["ended", "0", "0", "deleted", "84.50", "12"], "it was deleted"
    assert not any(line.startswith("POOL") for line in frame(overview()))


def test_before_the_first_measurements_the_head_counts_no_slos() -> None:
    unmeasured = [known | {"attained": None} for known in overview()["services"]]
    assert "services not measured yet" in frame(overview() | {"services": unmeasured})[1]


def test_right_after_the_first_plan_services_start_and_none_has_missed_its_slo() -> None:
    late = overview() | {"services": [service(number, attained=0.0) for number in range(2)]}
    first = late["plan"] | {"reason": "first_plan"}
    assert "services 0 of 2 within their SLO" in frame(late | {"plan": first})[1]
    assert "services starting" in frame(late | {"plan": first | {"at": datetime.now(UTC).isoformat()}})[1]


def test_a_service_without_a_copy_that_answers_is_not_within_its_slo_whatever_was_measured_before() -> None:
    lines = frame(overview() | {"services": [service(0, routed=0), service(1)]}, colours={"red": "<red>"})
    assert "services 1 of 2 within their SLO" in lines[1]
    (dead,) = [line for line in lines if "shop/s0" in line and "0 of 2" in line]
    assert dead.startswith("<red>")


def test_without_a_leader_the_last_one_is_named() -> None:
    last = {"holder": "here:1", "epoch": 3, "held": False}
    assert frame(overview(leader=last))[0].endswith("; no planner leads (here:1 led last, epoch 3)")
    assert frame(overview(leader=None))[0].endswith("; no planner leads")


def test_what_is_unserved_is_a_rate_and_no_money() -> None:
    plan = overview()["plan"] | {"cost": 1012.0, "unservedCost": 1000.0, "unservedPerSecond": 250.0}
    lacking = service(0, unservedPerSecond=250.0)
    lines = frame(overview(plan=plan) | {"services": [lacking, service(1)]})
    assert lines[1].startswith("cost 12.00/h   unserved 250/s   no bound of what runs now   services")
    headings = lines[3].split()
    assert "   140 of 390   250   " in lines[4]
    assert lines[5].split()[headings.index("UNSERVED")] == "-"


def test_silent_nodes_are_named_with_how_long_and_no_bound_is_of_what_they_run() -> None:
    silent: list[dict[str, Any]] = [{"node": f"n-{number}", "since": THEN} for number in range(5)] + [
        {"node": "new", "since": None}
    ]
    silent.append({"node": "burst-1", "since": None, "starting": True})
    lost = service(0, plannedPerSecond=0.0, unservedPerSecond=140.0, instances=0, routed=0, silentCopies=2)
    kept = service(1, routed=1, silentCopies=1)
    lines = frame(overview(silent=silent) | {"services": [lost, kept]})
    assert lines[1].startswith("cost 12.00/h   no bound of what runs now   services 2 of 2")
    for_long = age(THEN)
    named = ", ".join(f"n-{number} for {for_long}" for number in range(4))
    assert lines[2] == f"silent: {named} and 1 more; what they run now is not known"
    assert lines[3:5] == ["rented and starting: burst-1", "never reported: new"]
    assert "   0.0 of 140   " in lines[7] and "   0 of 0, 2 on silent nodes   " in lines[7]
    assert "   1 of 2, 1 on silent nodes   " in lines[8]


def test_nodes_that_have_never_reported_run_nothing_so_that_the_bound_is_of_what_runs() -> None:
    new = [{"node": "new", "since": None, "starting": False}, {"node": "burst-1", "since": None, "starting": True}]
    assert frame(overview(silent=new))[1].startswith("cost 12.00/h   bound 11.10/h   gap 8.1 %")


def test_copies_of_silent_nodes_answer_where_requests_were_counted() -> None:
    rows = [service(0, routed=0, silentCopies=2), service(1, routed=0, silentCopies=2, ratePerSecond=None)]
    assert "services 1 of 2 within their SLO" in frame(overview() | {"services": rows})[1]


def test_a_rollout_that_stopped_has_no_bound_of_what_runs() -> None:
    for state, text in (("stopped", "no bound of what runs now"), ("done", "bound 11.10/h   gap 8.1 %")):
        assert text in frame(overview(plan=overview()["plan"] | {"state": state}))[1]


def test_copies_that_answer_and_are_not_planned_are_more_than_none() -> None:
    (line,) = [
        line for line in frame(overview() | {"services": [service(0, instances=0, routed=2)]}) if "shop/s0" in line[:8]
    ]
    assert "   2, none planned   " in line


def test_the_price_of_held_gpus_stands_after_the_cost_of_the_plan() -> None:
    assert frame(overview(money={"heldPerHour": 13.5}))[1].startswith("cost 12.00/h   held 13.50/h   bound 11.10/h")


def test_a_gpu_that_is_held_and_not_planned_is_listed_as_leaving() -> None:
    gpu = {"node": "n-2", "gpu": 3, "smPercent": 40.0, "memoryGib": 2.0}
    lines = frame(overview(leaving=[gpu], money={"heldPerHour": 13.5}))
    assert lines[1].endswith("GPUs in use 1 and 1 leaving")
    (line,) = [line for line in lines if line.startswith("n-2/3")]
    assert " 40 %   2.0 GiB   -" in line
    assert line.endswith("leaving: the plan does not use it")


def test_before_a_plan_the_last_try_is_shown_and_warnings_below() -> None:
    tried = {"at": THEN, "outcome": "out_of_time", "reason": "solver_out_of_time", "message": "no answer in 25 s"}
    subject = {"kind": "Node", "tenant": "", "name": "n-1"}
    lost = {"at": THEN, "reason": "node_silent", "severity": "warning", "message": "not heard of"} | subject
    lines = frame(overview(plan=None, cycles=[tried], events=[lost, lost | {"severity": "info"}]))
    assert lines[0] == "no plan yet; led by here:1, epoch 3; out_of_time: no answer in 25 s"
    assert lines[-1].split() == ["node_silent", age(THEN), "node", "n-1", "not", "heard", "of"]


def test_fields_that_the_server_omits_are_named_below_the_head() -> None:
    why = "pricePerHour of services: no numpy"
    lines = frame(overview() | {"leftOut": [why], "services": [service(0, pricePerHour=None)]})
    assert lines[2] == f"left out: {why}"


def test_services_gpus_and_decisions_have_a_table_each() -> None:
    text = "\n".join(frame(overview()))
    assert "shop/s0   123      140       -          99.10 %    98 % in 80 ms   71.0 ms     2           1.25" in text
    assert "n-1/0   ██████████░░░░░░░░░░ 50 %   4.0 GiB   33 %   120 W   shop/s0, lab/j" in text
    assert text.splitlines()[-1].split() == [
        "7",
        age(THEN),
        "fast",
        "rolling",
        "start",
        "1",
        "instance",
        "More",
        "load.",
    ]


def test_a_missed_slo_is_red_where_colours_are_welcome() -> None:
    said = overview() | {"services": [service(0, attained=0.5), service(1)]}
    lines = frame(said, None, {"red": "<red>"})
    assert [line.startswith("<red>") for line in lines if "shop/s" in line[:12]] == [True, False]


def test_what_does_not_fit_is_counted() -> None:
    lines = frame(overview(services=300), 24)
    assert len(lines) <= 24
    assert any(line.startswith("and ") and line.endswith(" more services") for line in lines)
    assert any("n-1/0" in line for line in lines)


def test_a_missing_plan_and_a_missing_leader_are_reported() -> None:
    assert frame({"services": [], "gpus": [], "plan": None, "leader": None, "decisions": []})[0] == (
        "no plan yet; no planner leads"
    )


def test_a_tenant_sees_its_services_alone() -> None:
    lines = frame({"services": [service(0)]})
    assert lines[0] == "1 services"
    assert len(lines) == 4


def test_an_unknown_value_is_a_dash() -> None:
    said = overview() | {"services": [service(0, ratePerSecond=None, attained=None, latencyMs=None, pricePerHour=None)]}
    (line,) = [line for line in frame(said) if line.startswith("shop/s0")]
    assert line.split() == ["shop/s0", "-", "140", "-", "-", "98", "%", "in", "80", "ms", "-", "2", "-"]


def test_while_copies_start_those_that_answer_are_counted() -> None:
    (line,) = [line for line in frame(overview() | {"services": [service(0, routed=1)]}) if line.startswith("shop/s0")]
    assert "1 of 2" in line
