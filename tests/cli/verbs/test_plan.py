"""The verbs around plans, over a fleet that was really planned: what they print, and what they are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.verbs.plan import shown
from tests.cli.conftest import Run
from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def fleet(postgres: DatabaseServer) -> Iterator[Planned]:
    with planned_fleet(postgres) as planned:
        yield planned


@pytest.fixture(scope="module")
def server(fleet: Planned) -> RunningServer:
    """The one that `run` talks to."""
    return fleet.server


def test_history_is_a_table_and_json(run: Run) -> None:
    done = run("plan", "history")
    assert done.code == 0
    assert done.lines[0].split() == [
        "PLAN",
        "AGE",
        "STATE",
        "BY",
        "WHY",
        "COST",
        "EUR/H",
        "UNSERVED/S",
        "GAP",
        "CHANGES",
        "OF",
    ]
    items = json.loads(run("plan", "history", "-o", "json").out)
    made = items[-1]
    assert made["unservedPerSecond"] > 0 and made["cost"] == pytest.approx(made["resourceCost"] + made["unservedCost"])
    assert made["resourceCost"] == json.loads(run("plan", "show", "-o", "json").out)["certificate"]["resourceCost"]
    assert [str(one["generation"]) for one in items] == [line.split()[0] for line in done.lines[1:]]


def test_show_prints_the_plan_and_its_json_is_the_contracts(run: Run) -> None:
    done = run("plan", "show")
    assert done.code == 0
    assert "shop/a" in done.out
    assert "unserved: lab/x: " in done.out
    plan = json.loads(run("plan", "show", "--json").out)
    assert {"instances", "certificate", "unserved", "changes"} <= plan.keys()
    assert run("plan", "show", str(plan["generation"])).out == done.out


def test_show_says_when_a_plan_was_checked_and_with_what_outcome(run: Run) -> None:
    plan = json.loads(run("plan", "show", "-o", "json").out)
    at = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    check = {"outcome": "same", "message": "checked against CP-SAT: the same cost", "at": at}
    assert "checked against CP-SAT: the same cost (5m ago)" in list(shown({**plan, "crossCheck": check}))


def test_diff_says_in_words_what_changed(run: Run) -> None:
    done = run("plan", "diff", "--against", "0")
    assert done.code == 0
    assert "  shop/a: 0 -> 1 instances: 1 started" in done.lines
    assert done.lines[0] == "plan 1 against nothing: GPUs cost 0 -> 4.8 EUR an hour"


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_an_empty_list_of_approvals_is_reported(run: Run, verb: str) -> None:
    done = run("plan", verb)
    assert done.code == 1
    assert "no plan waits for approval" in done.err


def test_an_impossible_request_to_a_plan_is_refused_in_a_single_line(run: Run) -> None:
    done = run("plan", "pause")
    assert done.code == 3
    assert "plan 1 is done; only plans that are rolling can be paused" in done.err


def test_explain_tells_why_in_sentences(run: Run) -> None:
    done = run("explain", "service", "shop/a")
    assert done.code == 0
    assert done.lines[0].startswith("shop/a needs 200 requests a second")
    assert "why this GPU: " in done.out
    assert "why not cheaper: " in done.out
    said = json.loads(run("explain", "service", "shop/a", "--json").out)
    assert run("explain", "instance", said["instances"][0]["id"]).code == 0
    missing = run("explain", "service", "lab/x")
    assert "least change that helps: " in missing.out
    plan = run("explain", "plan")
    assert plan.lines[0].startswith("plan 1 (full) is ")
    assert "  why it was made: No plan was in force yet." in plan.lines
    assert "lately:" in plan.lines
    names = [item["metadata"]["name"] for item in json.loads(run("get", "profiles", "-o", "json").out)]
    profile = run("explain", "profile", names[0])
    assert profile.lines[0].startswith(f"profile {names[0]}: ")
    assert " ".join(profile.lines[1].split()) == "BATCH SM% DECLARED MS FACTOR PLANNED MS N AT SOURCE"
    assert run("explain", "profile", "none").code != 0
    assert run("explain", "plan", "seven").code == 2
    assert run("explain", "service").code == 2


def test_explain_tells_what_a_node_and_a_tenant_have_and_what_limits_them(run: Run) -> None:
    node = run("explain", "node", "node-0")
    assert "node-0 has " in node.out and "% of the SMs and " in node.out
    assert "nothing keeps plans off it" in node.out
    uses = json.loads(run("explain", "node/node-0", "--json").out)["gpus"]
    assert any(use["services"] for use in uses)
    tenant = run("explain", "tenant", "shop")
    assert "shop has 3 services and 0 jobs; the plan gives it " in tenant.out
    assert "shop has neither limit nor guarantee of GPUs" in tenant.out
    assert "lab/x lacks " in run("explain", "tenant", "lab").out
    assert run("explain", "node", "none").code == run("explain", "tenant", "none").code == 1
    assert run("explain", "node", "node-0", "--plan", "1").code == 2


def test_a_service_can_be_explained_by_its_name_alone(run: Run) -> None:
    named = run("explain", "service", "shop/a").out
    assert run("explain", "shop/a").out == run("explain", "service/shop/a").out == run("explain", "a").out == named
    assert "did you mean node?" in run("explain", "gpu", "node-0/1").err
    assert "no service or job has this name" in run("explain", "b-side").err
    missing = run("explain", "shop/nosuch")
    assert missing.code == 1 and "no service or job shop/nosuch" in missing.err
    wrong = run("explain", "servce")
    assert wrong.code == 2 and "did you mean service?" in wrong.err


def test_what_if_finds_a_service_without_its_tenant_and_explains_a_turned_factor(run: Run) -> None:
    assert run("what-if", "--rate", "a=x2", "--work", "1").code == 0
    turned = run("what-if", "--rate", "shop/a=2x")
    assert turned.code == 2 and "did you mean `x2`?" in turned.err
    assert "did you mean shop/a?" in run("what-if", "--rate", "shop/aa=x2", "--work", "1").err


def test_a_what_if_that_stops_early_says_so(run: Run) -> None:
    done = run("what-if", "--rate", "shop/a=x2", "--seconds", "30")
    assert done.code == 0
    assert "nothing better was found for a while" in done.err


def test_a_pool_is_explained_with_its_price_and_its_name_is_asked_for(run: Run, server: RunningServer) -> None:
    spec = {"gpuType": "v100-16gb", "gpusPerNode": 4, "cpuCores": 8, "memoryGib": 64, "max": 3, "hook": "cloud"}
    pool = {"apiVersion": "gpuwright/v1", "kind": "Pool", "metadata": {"name": "burst"}, "spec": spec}
    assert run("apply", "-f", "-", stdin=json.dumps(pool)).code == 0
    done = run("explain", "pool", "burst")
    assert done.code == 0, done.err
    assert done.lines[0] == "burst has no node, of 0 to 3; one would have 4 GPUs of v100-16gb at 4.8 EUR an hour"
    assert done.lines[1].strip() == "the planner has not looked at it yet"
    assert json.loads(run("explain", "pool/burst", "-o", "json").out)["nodes"] == []
    for path in ("pools/burst", "pools/none"):
        token = server.token("viewer", tenant="shop")
        assert server.request("GET", f"/api/v1/explain/{path}", token=token).status == 403
    lost = run("explain", "pool", "bursd")
    assert lost.code == 1 and "bursd" in lost.err
    assert run("delete", "pool", "burst", "-y").code == 0


def test_what_if_compares_and_prices(run: Run, tmp_path: Path) -> None:
    done = run("what-if", "--add-gpu", "v100-16gb=4", "--rate", "shop/a=x2", "--work", "2")
    assert done.code == 0, done.err
    assert done.lines[0] == (
        "GPUs cost 4.8 EUR an hour in the plan in force, 4.8 in the best plan for today, "
        "9.6 in the best plan for the change: +4.8 to today's"
    )
    assert done.lines[1].startswith("GPUs that services use 4, 4, 8; instances ")
    assert done.lines[2].startswith("unserved: ") and "penalty" not in done.out
    file = tmp_path / "changes.yaml"
    file.write_text(
        "{apiVersion: gpuwright/v1, kind: Service, metadata: {name: b, tenant: shop}, "
        "spec: {model: b, slo: {latencyMs: 120, percentile: 98}, ratePerSecond: 20}}\n"
    )
    told = json.loads(run("what-if", "-f", str(file), "--work", "2", "--json").out)
    assert told["services"][0]["service"] == "shop/b"
    prices = run("what-if", "--price-slo", "shop/a", "--work", "2")
    assert prices.lines[0].split()[:2] == ["SERVICE", "SLO"]
    assert "PAID NOW EUR/H" in prices.lines[0] and prices.lines[1].startswith("shop/a")
    assert prices.lines[-2].startswith("PAID NOW: ") and prices.lines[-1].startswith("COSTS: ")
    latencies, percentiles = (
        next(at for at, line in enumerate(prices.lines) if line.split()[:2] == ["SERVICE", word])
        for word in ("AT", "PERCENTILE")
    )
    assert len(prices.lines[latencies:percentiles]) > 2, "what the SLO costs at other latencies stands before"
    named = [line.split()[1] for line in prices.lines[percentiles:-2]]
    assert named == ["PERCENTILE", "90", "95", "98", "99", "99.9"]
    assert {line.split()[-1] for line in prices.lines[percentiles + 1 : -2]} <= {"yes", "no"}
    picture = tmp_path / "prices.svg"
    risks = run("what-if", "--risk", "a=0.5", "--risk-prices", str(picture), "--work", "2")
    assert risks.code == 0, risks.err
    assert [line.split()[0] for line in risks.lines[-7:]] == ["RISK", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5"]
    drawn = ElementTree.parse(picture).getroot()
    assert [words.text for words in drawn.iter(f"{SVG}desc")] == [
        f"GPUs of the fleet cost, EUR an hour: {', '.join(f'4.80 at {risk} %' for risk in (50, 20, 10, 5, 2, 1))}; "
        "requests stay unserved at 50 %, 20 %, 10 %, 5 %, 2 %, 1 %."
    ]
    lost = run("what-if", "--risk-prices", f"{tmp_path}/none/prices.svg", "--work", "1")
    assert "cannot be written" in lost.err and "PLANNED/S" in lost.out, "the prices are told all the same"
    twice = run("what-if", "--risk", "shop/a=0.1", "--risk", "shop/a=0.5")
    assert "risk is given twice for shop/a; allowed: once" in twice.err and twice.code == 2, twice
    both = run("what-if", "--rate", "shop/a=x2", "--risk", "shop/a=0.5")
    assert "shop/a is given a rate and a risk" in both.err and both.code == 2, both
    assert run("what-if").code == 2
    assert run("what-if", "--add-gpu", "h100=2").code == 2


def test_a_division_is_an_order_for_an_operator_with_its_manifests(run: Run, tmp_path: Path) -> None:
    none = run("what-if", "--divide", "--work", "1")
    assert none.lines == ["no GPU of this fleet can be divided: a v100-16gb is no GPU that can be divided"]
    lost = run("what-if", "--divide", f"{tmp_path}/none")
    assert lost.code == 2 and "is no folder: make it first" in lost.err
    big = "{memoryGib: 40, smCount: 108, pricePerHour: 2.8, idleW: 50, maxW: 400, clocksMhz: [1410]}"
    slow = "{model: alone, variant: v, gpuType: big, latencyMs: {1: {10: 40, 100: 8}}, memoryGib: {1: 2}}"
    lines = [
        f"{{apiVersion: gpuwright/v1, kind: GpuType, metadata: {{name: big}}, spec: {big}}}",
        "{apiVersion: gpuwright/v1, kind: Model, metadata: {name: alone}, spec: {variants: [{name: v, accuracy: 1}]}}",
        f"{{apiVersion: gpuwright/v1, kind: Profile, metadata: {{name: alone}}, spec: {slow}}}",
    ]
    for name in ("x", "y", "z"):
        spec = "{model: alone, isolation: dedicated, slo: {latencyMs: 90, percentile: 95}, ratePerSecond: 1}"
        named, node = f"{{name: {name}, tenant: shop}}", "{gpuType: big, gpus: 1, cpuCores: 16, memoryGib: 64}"
        lines.append(f"{{apiVersion: gpuwright/v1, kind: Service, metadata: {named}, spec: {spec}}}")
        lines.append(f"{{apiVersion: gpuwright/v1, kind: Node, metadata: {{name: big-{name}}}, spec: {node}}}")
    file, folder = tmp_path / "big.yaml", tmp_path / "divided"
    file.write_text("\n---\n".join(lines))
    folder.mkdir()
    done = run("what-if", "-f", str(file), "--divide", str(folder), "--work", "4")
    assert done.code == 0, done.err
    assert "dividing 1 node of big into devices 1g.5gb saves 5.6 EUR an hour" in done.out
    assert "nvidia-smi mig -cgi 19,19,19,19,19,19,19 -C" in done.out
    assert sorted(path.name for path in folder.iterdir()) == ["_types.yaml", "big-x.yaml"]
    assert run("validate", "-f", str(file), "-f", str(folder / "_types.yaml")).code == 0
    assert "gpus: 7" in (folder / "big-x.yaml").read_text()


def test_cordon_drain_and_uncordon(run: Run) -> None:
    assert run("cordon").err == "nothing is cordoned\n"
    assert run("cordon", "node-1/1", "-m", "fan is loud").out == "node-1/1 cordoned\n"
    drained = "node-1 is being drained; what is still on it: gpuwright describe node node-1\n"
    assert run("drain", "node-1", "--deadline", "30m").out == drained
    listed = run("cordon")
    assert listed.lines[0].split() == ["PLACE", "MODE", "SINCE", "DEADLINE", "MESSAGE"]
    assert [line.split()[:2] for line in listed.lines[1:]] == [["node-1", "drain"], ["node-1/1", "cordon"]]
    assert run("uncordon", "node-1").out == "node-1 uncordoned\n"
    assert run("uncordon", "node-1").code == 1
    assert run("drain", "node-1/x").code == 2
    assert run("drain", "node-9").code == 1


def test_a_notice_of_reclaim_is_given_listed_and_withdrawn(run: Run) -> None:
    given = "node-1 goes in 60m, and is being emptied; see: gpuwright describe node node-1\n"
    assert run("reclaim", "node-1", "--in", "1h", "-m", "spot").out == given
    assert [line.split()[:2] for line in run("cordon").lines[1:]] == [["node-1", "reclaim"]]
    heading, *rows = run("get", "nodes").lines
    assert "RECLAIM" in heading.split()
    assert [bool(re.search(r" ago | in \d", row)) for row in rows] == [False, True]  # by the clock of this machine
    done = run("reclaim", "node-1", "--withdraw")
    assert (done.code, done.out) == (0, "node-1 is not reclaimed\n")
    assert run("reclaim", "node-1", "--withdraw").code == 1
    assert run("reclaim", "node-9").code == 1
    assert run("reclaim", "node-1/0").code == 2
    assert run("reclaim", "node-1", "--in", "2d").code == 2
    assert run("reclaim", "node-1", "--in", "5m", "--withdraw").code == 2
    assert run("reclaim").code == 2
    assert run("cordon").err == "nothing is cordoned\n"


def test_events_are_listed(run: Run) -> None:
    done = run("events", "--limit", "5")
    assert done.code == 0
    assert isinstance(json.loads(run("events", "-o", "json").out), list)
    named = run("events", "--for", "node-1", "-o", "json")
    assert json.loads(named.out) == json.loads(run("events", "--for", "node/node-1", "-o", "json").out) != []
    of_job = [run("events", "--for", name, "-o", "json").out for name in ("shop/a", "service/shop/a")]
    assert of_job[0] == of_job[1]
    assert run("events", "--reason", "nonsense").code == 2
