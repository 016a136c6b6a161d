"""The benchmark measures what it says: a small run of it, whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.bench.api import find_percentile
from tests.support.patience import patience


@pytest.mark.slow
def test_a_small_fleet_is_measured_without_errors(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli.main", "bench", "api", "--agents", "20", "--seconds", "2"]
    done = subprocess.run(
        [*command, "--rate", "50", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=patience()
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"reports_per_second", "p50_ms", "p99_ms", "decision_to_agent_p99_ms", "errors"}
    assert found["errors"] == 0
    assert 0 < found["reports_per_second"] <= 50
    assert found["decision_to_agent_p99_ms"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_agents_of_a_server_that_is_killed_go_to_another(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli.main", "bench", "api", "--agents", "20", "--seconds", "4", "--rate", "50"]
    alone = subprocess.run([*command, "--kill"], cwd=tmp_path, capture_output=True, text=True, timeout=patience())
    assert (alone.returncode, "--servers" in alone.stderr) == (2, True)
    done = subprocess.run(
        [*command, "--servers", "2", "--kill", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=patience(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["moved_agents"] == 10
    assert found["errors"] >= 10, "the reports that the killed server did not answer, and the polls that it held"
    assert found["unanswered_reports"] == 0, "each is sent again"
    assert found["back_after_seconds"] > 0


@pytest.mark.slow
def test_reports_are_measured_while_a_viewer_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli.main", "bench", "api", "--agents", "5", "--seconds", "1", "--rate", "10"]
    command += ["--readers", "1", "--services", "20", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["errors"] == found["reads_refused"] == 0
    assert found["p99_ms"] > 0
    assert found["quiet_p99_ms"] > 0
    assert all(found[f"reads of {path}"] for path in ("/api/v1/slo", "/api/v1/overview", "/"))


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 99, None), ([5.0], 99, 5.0), ([3.0, 1.0, 2.0], 50, 2.0), (list(map(float, range(1, 101))), 99, 99.0)],
)
def test_a_percentile_is_a_value_that_was_measured(values: list[float], percent: float, expected: float | None) -> None:
    assert find_percentile(values, percent) == expected
