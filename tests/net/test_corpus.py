"""The seeded part of the corpus is asked again, each time with other hashes; the whole is for `make net`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from solvers.planning.solve import SolveBudget, find
from tests.net.corpus import PROBLEM, Corpus
from tests.net.placements import list_placements
from tests.net.problems import answer_problem, read_problem
from tests.net.record_problems import draw_problems
from tests.net.recording import count_kinds
from tests.support.soak import scaled

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SHARES = 6
ASKED = scaled(SHARES, 3)  # of the shares; `make net` asks all
FEWEST_OF_A_KIND = 20
LOADS, PLANNERS = ("steady", "moving", "spike", "wave"), ("hetsev", "mudi", "inss", "morak", "oltunes")
KINDS = (
    "demo", "chaos", "jobs", "language models", "availability", "spot", "node billing", "approval", "tenant limit",
    "power budget", "large", *(f"load {load}" for load in LOADS), *(f"planner {planner}" for planner in PLANNERS),
)  # fmt: skip


def test_the_corpus_has_records_of_every_kind() -> None:
    counts = count_kinds(Corpus())
    assert counts["all cycles"] >= 400
    assert counts["all problem"] >= 60
    assert {kind: counts[kind] for kind in KINDS if counts[kind] < FEWEST_OF_A_KIND} == {}


def test_the_recorded_problems_can_be_drawn_again() -> None:
    corpus = Corpus()
    recorded = [corpus.read(name) for name in corpus.list_names()]
    drawn = {series.name: series.head for series in draw_problems()}
    assert drawn == {series.name: series.head for series in recorded if series.head.kind == PROBLEM}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(1, ASKED + 1))
def test_the_answers_are_as_good_as_the_recorded_ones(number: int) -> None:
    asked = [sys.executable, "-m", "tests.net", "--part", f"{number}/{SHARES}", "--processes", "1"]
    found = subprocess.run(
        asked, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": f"{number}"}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("name", ["example-quickstart", "family-F-8x4-0"])
def test_two_processes_of_the_solver_find_what_one_finds(name: str) -> None:
    series = Corpus().read(name)
    problem, head = read_problem(series), series.head
    forked = find(problem, SolveBudget(seconds=None, work=head.work, seed=head.seed)).plan
    alone = Corpus().read_answers()[name]
    assert list_placements(forked, problem) == alone.placements
    assert forked.certificate and forked.certificate.bound == pytest.approx(alone.bound, rel=1e-9)


def test_a_written_series_is_read_again_and_answered_alike(tmp_path: Path) -> None:
    corpus, series = Corpus(tmp_path), Corpus().read("example-quickstart")
    corpus.write(series)
    assert corpus.read(series.name) == series
    first = answer_problem(series)
    corpus.write_answers([first])
    assert corpus.read_answers() == {series.name: first}
