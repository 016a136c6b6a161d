"""What is declared is served, and the fleet says what it does and why, and what a change would do."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
import yaml

from cli import exits
from cli.main import main
from tests.support.patience import until
from tests.tour.running import TourFleet
from tests.tour.world import served


def test_what_is_declared_in_a_file_is_planned_started_and_answers(fleet: TourFleet, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(served("tags", "visitor")))
    try:
        assert "service/visitor/tags created" in fleet.cli("apply", "-f", str(file))
        fleet.cli("wait", "service", "visitor/tags", "--for", "condition=Planned", "--timeout", "120s")
        fleet.until(lambda: bool(fleet.copies("visitor/tags")), "it is served")
        (copy,) = fleet.copies("visitor/tags")
        with urllib.request.urlopen(f"http://{copy.address}/v1/models/quick:infer", b"{}", timeout=60) as answer:
            assert "digest" in json.loads(answer.read())
    finally:
        fleet.cli("delete", "-f", str(file), "--yes")
    fleet.until(lambda: not fleet.copies("visitor/tags"), "its copies have gone")


def test_a_file_with_faults_is_refused_with_all_of_them_and_nothing_of_it_is_stored(
    fleet: TourFleet, tmp_path: Path
) -> None:
    wrong = served("wrong", "visitor", slo={"latencyMs": "80", "percentle": 98})
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump_all([served("right", "visitor"), wrong]))
    said = fleet.cli("apply", "-f", str(file), code=2)
    assert "3 faults; nothing was stored" in said
    assert "percentle" in said and "latencyMs" in said
    assert fleet.request("GET", "/api/v1/services/visitor/right").status == 404


def test_diff_names_the_field_that_would_change_and_changes_nothing(fleet: TourFleet, tmp_path: Path) -> None:
    before = fleet.get("services/shop/search")
    file = tmp_path / "faster.yaml"
    file.write_text(
        yaml.safe_dump(
            {name: before[name] for name in ("apiVersion", "kind")}
            | {"metadata": {"name": "search", "tenant": "shop"}}
            | {"spec": before["spec"] | {"slo": {"latencyMs": 70, "percentile": 95}}}
        )
    )
    assert "spec.slo.latencyMs: 100 -> 70" in fleet.cli("diff", "-f", str(file), code=1)
    assert fleet.get("services/shop/search")["spec"] == before["spec"]


def test_explain_says_where_a_service_runs_why_there_and_what_the_plan_costs(fleet: TourFleet) -> None:
    said = fleet.cli("explain", "service", "shop/search")
    (node,) = fleet.nodes_of("shop/search")
    assert node in said
    assert "why this GPU" in said and "why this share" in said
    said = fleet.cli("explain", "plan")
    assert "why it was made" in said and "its GPUs cost 1.2" in said


def test_what_if_prices_ten_times_the_load_and_touches_nothing(fleet: TourFleet) -> None:
    generation = fleet.current()["generation"]
    answer = json.loads(fleet.cli("what-if", "--rate", "shop/search=x10", "--work", "5", "--json"))
    assert answer["costDelta"] >= 0 and answer["unserved"] == []
    assert fleet.current()["generation"] == generation
    assert fleet.get("services/shop/search")["spec"]["ratePerSecond"] == 20


def test_top_shows_the_plan_its_services_and_its_gpus(fleet: TourFleet) -> None:
    said = fleet.cli("top", "--once")
    assert "shop/search" in said and "GPUs in use 1" in said
    assert "north/0" in said or "south/0" in said


def test_get_shows_the_copies_that_are_routed_now(fleet: TourFleet) -> None:
    def are_shown() -> bool:
        (search,) = [each for each in fleet.get("overview")["services"] if each["service"] == "shop/search"]
        shown = f"{search['routed']} of {search['instances']}" in fleet.cli("get", "services", "--tenant", "shop")
        return bool(shown and search["routed"] == search["instances"] > 0)

    until(are_shown, "get and the overview say the same")


def test_a_recorded_decision_comes_out_the_same_when_it_is_made_again(
    fleet: TourFleet, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record.json"
    generation = str(fleet.current()["generation"])
    # In this process, which has the planner's loops already.
    monkeypatch.setenv("GPUWRIGHT_CONFIG", fleet.environment["GPUWRIGHT_CONFIG"])
    assert main(["replay", generation, "--save", str(record), "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["identical"] is True
    assert main(["replay", "-f", str(record), "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["identical"] is True
