"""What needs no fleet: plans of files by each planner, judged, and a fleet in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cli import exits
from cli.main import main
from tests.support.forked import ROOT
from tests.support.world import node
from tests.tour.world import BASE, NODES, POLICY, served

QUICKSTART = str(ROOT / "examples" / "quickstart.yaml")
PLANNERS = ("joint", "hetsev", "mudi", "inss", "morak", "oltunes")
INCOMPLETE = 3  # an exit status: a right plan that leaves some load unserved


@pytest.mark.parametrize("planner", PLANNERS)
def test_each_planner_plans_the_first_example_and_the_judge_finds_no_rule_broken(
    planner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    code = main(["solve", "-f", QUICKSTART, "--planner", planner, "--work", "3", "-o", str(plan)])
    assert code in (exits.OK, INCOMPLETE)
    capsys.readouterr()
    main(["verify", "-f", QUICKSTART, str(plan), "--json"])
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["violations"] == []


def test_ten_minutes_pass_in_virtual_time_and_every_service_keeps_its_slo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fleet.yaml"
    nodes = [node(name, kind, gpus=1) for name, kind in NODES.items() if kind == "v100-16gb"]  # both services run there
    calm = {**POLICY, "spec": {**POLICY["spec"], "cycleSeconds": 30}}  # ten minutes hold enough such cycles
    declared = [calm if document is POLICY else document for document in BASE]
    file.write_text(yaml.safe_dump_all([*declared, *nodes, served("tags", "shop")]))
    words = ["-f", str(file), "--hours", "0.17", "--load", "steady", "--work", "5", "--no-comparison", "--json"]
    assert main(["simulate", *words]) == exits.OK
    figures = json.loads(capsys.readouterr().out)
    assert figures["requests"] > 0
    assert {name: of["share"] for name, of in figures["attainment"].items()} == {"shop/search": 1.0, "shop/tags": 1.0}
