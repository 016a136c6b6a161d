"""`bench pools` compares three rules on one load, and hindsight."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cli.main import main
from simulation.measure import renting_rows
from tests.simulation.test_renting import pool
from tests.simulation.worlds import gpu_type, model, node, policy, profile, service


def write_fleet(folder: Path, *more: object) -> str:
    documents = [gpu_type(), policy(mode="auto"), node("base", gpus=1), model("a"), profile("a"), service("a", 45.0)]
    (folder / "fleet.yaml").write_text(yaml.safe_dump_all([*documents, *more]))
    return str(folder / "fleet.yaml")


@pytest.mark.slow
def test_a_row_for_each_rule_and_hindsight_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renting_rows, "HEADROOMS", (0.0,))
    fleet = write_fleet(tmp_path, pool(startSeconds=60, minimumMinutes=1, min=1))
    assert main(["bench", "pools", "-f", fleet, "--hours", "0.2", "--load", "steady", "--json"]) == 0
    rows = {row["row"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(rows) == [
        renting_rows.WHOLE_GPUS,
        renting_rows.OUR_PLACEMENT,
        renting_rows.OURS,
        "hindsight",
    ]
    assert rows["hindsight"]["rented_per_hour"] == pytest.approx(1.2), "min is always rented"
    assert rows[renting_rows.OURS]["ours_of_it"] == 1.0
    assert all(row["orders"] == 1 for row in list(rows.values())[:3])


def test_a_fleet_without_pools_and_a_folder_without_records_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "pools", "-f", write_fleet(tmp_path)]) == 2
    assert "the files must declare a Pool and a Node" in capsys.readouterr().err
    fleet = write_fleet(tmp_path, pool())
    assert main(["bench", "pools", "-f", fleet, "--data", str(tmp_path)]) == 2
    assert "has no *-trace.csv and no *.jsonl" in capsys.readouterr().err
    assert main(["bench", "pools", "-f", fleet, "--from-hour", "3"]) == 2
    assert "--from-hour needs --data" in capsys.readouterr().err


def test_costs_compare_only_with_rows_that_serve_as_well() -> None:
    ours = {"rented_per_hour": 1.5, "attained": 0.99, "missed": 0}
    row = {"rented_per_hour": 3.0, "attained": 0.9885, "missed": 0}
    assert renting_rows.divide_ours(row, ours) == 0.5
    assert renting_rows.divide_ours(row | {"attained": 0.98}, ours) is None
    assert renting_rows.divide_ours(row | {"missed": 1}, ours) is None
    assert renting_rows.divide_ours({"rented_per_hour": 1.0}, ours) == 1.5, "hindsight plays nothing"
    assert renting_rows.divide_ours({"rented_per_hour": None}, ours) is None, "no rental was found"
