"""`bench cycle` prints what the contract says: a planner over a fleet in virtual time, then real agents that poll."""

from __future__ import annotations

import json

import pytest

from cli.bench import cycle, steady
from cli.main import main


@pytest.mark.slow
def test_bench_cycle_prints_the_row_of_its_contract(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"AGENT_SECONDS": 2.0, "ROUNDS": 1}.items():
        monkeypatch.setattr(cycle, name, value)
    for name, value in {"QUIET_CYCLES": 1, "REST_CYCLES": 2, "MOST_CYCLES": 4}.items():
        monkeypatch.setattr(steady, name, value)
    size = ("--gpus", "8", "--services", "3", "--work", "2", "--cycles", "1", "--spikes", "2", "--agents", "2")
    assert main(["bench", "cycle", *size, "--json"]) == 0
    printed = capsys.readouterr()
    (row,) = json.loads(printed.out)["rows"]
    assert set(cycle.SHOWN) <= row.keys()
    assert (row["gpus"], row["services"], row["agents"]) == (8, 3, 2)
    assert row["overhead_ms"] > 0
    assert row["steady_changes"] >= 0
    assert 1 <= row["rest_cycles"] <= 4
    assert row["rest_changes"] >= 0
    assert "the first plan" in printed.err
