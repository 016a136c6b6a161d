"""What a test costs is found with all that it starts, and a test or a run that costs more than it may fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.meter.usage import ProcessTree
from tests.support.patience import until
from tests.support.small_suite import finish_run

pytestmark = pytest.mark.slow

METER, AMPLE = "--meter=costs.jsonl", "--limits=1000"
BURN = """
import os, subprocess, sys, time, pytest

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
"""
LOOP = BURN + "def test_is_quick(): pass\ndef test_loops(): burn(1.0)\n"
MARKED = BURN + "@pytest.mark.slow\ndef test_takes_long(): burn(1.0)\n"
AT_FIRST = BURN + "def test_is_late_once():\n    if not os.path.exists('ran'): open('ran', 'w'); burn(1.0)\n"
AT_FIRST_IN_A_PROCESS = (
    BURN
    + """
from functools import cache

@cache
def load(): burn(1.0)

@pytest.mark.parametrize("n", [1, 2])
def test_loads(n): load()
@pytest.mark.parametrize("n", [1, 2])
def test_loops(n): burn(1.0 if n == 2 else 0.0)
"""
)
NEEDLESS = "import pytest\n@pytest.mark.slow\n@pytest.mark.parametrize('n', [1, 2])\ndef test_is_cheap(n): pass\n"
CHILDREN = (
    BURN
    + """
CHILD = [sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"]

@pytest.fixture(scope="module")
def shared():
    burn(0.4)
    yield
    burn(0.4)

def test_starts_another(): subprocess.run(CHILD, check=True)
def test_shares(shared): pass
"""
)


def test_a_loop_of_a_second_in_an_unmarked_test_fails_by_name(tmp_path: Path) -> None:
    status, printed = finish_run(tmp_path, {"test_a.py": LOOP, "test_b.py": MARKED}, METER, AMPLE, "--workers=2")
    assert status == 1
    failed = [line for line in printed.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1
    times = r"(\d+\.\d\d and ){2}\d+\.\d\d"
    assert re.match(f"FAILED test_a.py::test_loops - needs {times} CPU seconds of a quick machine: more", failed[0])


def test_what_one_run_of_three_exceeds_is_noise(tmp_path: Path) -> None:
    status, printed = finish_run(tmp_path, {"test_a.py": AT_FIRST}, METER, AMPLE)
    assert (status, (tmp_path / "ran").exists()) == (0, True), printed
    assert read_costs(tmp_path)["test_a.py::test_is_late_once"]["seconds"] > 0.9


def test_what_a_process_loads_once_is_no_tests_cost(tmp_path: Path) -> None:
    status, printed = finish_run(tmp_path, {"test_a.py": AT_FIRST_IN_A_PROCESS}, METER, AMPLE)
    failed = [line.partition(" - ")[0] for line in printed.splitlines() if line.startswith("FAILED")]
    assert (status, failed) == (1, ["FAILED test_a.py::test_loops[2]"]), printed


def test_a_slow_test_that_needs_no_mark_is_reported_and_one_that_needs_it_is_not(tmp_path: Path) -> None:
    status, printed = finish_run(tmp_path, {"test_a.py": NEEDLESS, "test_b.py": MARKED}, METER, AMPLE)
    assert status == 0
    needless = [line for line in printed.splitlines() if line.startswith("is marked slow and needs less")]
    assert [line.rpartition(" ")[2] for line in needless] == ["test_a.py::test_is_cheap"]


def test_a_run_of_all_tests_over_its_budget_fails_and_a_run_of_some_does_not(tmp_path: Path) -> None:
    files = {"test_a.py": MARKED}
    status, printed = finish_run(tmp_path, files, METER, "--limits=0.1")
    assert (status, "CPU seconds of a quick machine, more than 0.1" in printed) == (1, True)
    status, _ = finish_run(tmp_path, files, METER, "--limits=0.1", "test_a.py")
    assert status == 0
    status, _ = finish_run(tmp_path, files, METER, "--limits=0.1", "-k", "nothing")
    assert status == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_child_counts_for_its_test_and_a_shared_fixture_for_none(tmp_path: Path) -> None:
    status, printed = finish_run(tmp_path, {"test_a.py": CHILDREN}, METER)
    assert status == 0
    starts, shares = (read_costs(tmp_path)[f"test_a.py::test_{name}"] for name in ("starts_another", "shares"))
    assert (starts["seconds"] > 0.35, starts["shared_seconds"]) == (True, 0.0)
    assert (shares["seconds"] < 0.2, shares["shared_seconds"] > 0.7) == (True, True)
    for line in ("tests that are not marked slow", "slow tests", "what tests share", "collection", "in all, where"):
        assert line in printed


def test_without_a_control_group_the_tree_of_processes_is_added_up() -> None:
    usage = ProcessTree()
    before = usage.seconds()
    burns = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", burns], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        until(lambda: usage.seconds() > before + 0.25, "a child that runs counts")
    assert usage.seconds() > before + 0.25, "one that ended counts, too"


def read_costs(folder: Path) -> dict[str, dict[str, float]]:
    lines = (folder / "costs.jsonl").read_text().splitlines()
    return {cost["name"]: cost for cost in map(json.loads, lines)}
