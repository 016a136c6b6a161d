"""`gpuwright bench power`: one object of rows, and a picture on request."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agents.policy.power.settings import PowerSettings
from tests.support.patience import patience

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, "bench", "power", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=patience(),
    )


def test_a_row_for_each_law_and_pair_of_bands_and_the_cap_held_within_one_period_by_ours() -> None:
    done = bench("--cases", "1", "--seconds", "60", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [sum(row["law"] == law for row in rows) for law in ("plan", "ours", "printed")] == [1, 20, 20]
    assert (PowerSettings().alpha, PowerSettings().beta) in {(row["alpha"], row["beta"]) for row in rows}
    assert max(row["longest_over_cap"] for row in rows if row["law"] == "ours") <= 1
    assert all(row["requests_per_second"] > 0 for row in rows)


def test_a_picture_that_has_no_folder_is_refused_before_anything_is_measured() -> None:
    done = bench("--out", "/nonexistent")
    assert done.returncode != 0
    assert "/nonexistent is no folder" in done.stderr
    assert "alpha" not in done.stderr
