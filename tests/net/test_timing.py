"""CPU seconds of two commits: what counts as slower, and that a process that answers is asked in turn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.net.corpus import Corpus
from tests.net.timing import AskedCommit, Checkout, ComparedSeconds, NotComparable, find_slower

ROOT = Path(__file__).parents[2]


def test_a_family_and_all_are_slower_by_a_share_of_the_recorded_seconds() -> None:
    lines = [ComparedSeconds("chaos", 10.0, 13.5), ComparedSeconds("large", 30.0, 30.0)]
    assert find_slower([*lines, ComparedSeconds("all", 40.0, 43.6)]) == [
        "chaos: 13.5 CPU s, 10.0 at the recorded commit: 35.0% more",
        "all: 43.6 CPU s, 40.0 at the recorded commit: 9.0% more",
    ]


def test_noise_and_families_of_a_moment_are_not_slower() -> None:
    lines = [ComparedSeconds("chaos", 10.0, 10.4), ComparedSeconds("example", 0.5, 0.9)]
    assert find_slower([*lines, ComparedSeconds("all", 10.5, 10.8)]) == []


@pytest.mark.slow
def test_a_commit_answers_by_name_with_its_seconds(tmp_path: Path) -> None:
    corpus, series = Corpus(tmp_path), Corpus().read("example-quickstart")
    corpus.write(series)
    with AskedCommit.start(Checkout(ROOT, Path(sys.executable)), corpus) as asked:
        found = [asked.ask(series.name), asked.ask(series.name)]
    assert [entry.name for entry in found] == [series.name, series.name]
    assert all(entry.cpu_seconds > 0 and not entry.fault for entry in found)


def test_a_commit_whose_own_net_fails_cannot_be_asked(tmp_path: Path) -> None:
    own = tmp_path / "tests" / "net"
    own.mkdir(parents=True)
    for file, text in ((own.parent / "__init__.py", ""), (own / "__init__.py", ""), (own / "__main__.py", "exit(3)")):
        file.write_text(text)
    with (
        AskedCommit.start(Checkout(tmp_path, Path(sys.executable)), Corpus()) as asked,
        pytest.raises(NotComparable, match="ended with code 3"),
    ):
        asked.ask("example-quickstart")
