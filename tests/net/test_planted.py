"""What changes an answer for the worse is named, by whatever planner: the fault is planted in the question."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.net.answers import Answer
from tests.net.comparing import DECISIONS, FIGURES, Comparison, find_faults, find_sum_faults
from tests.net.corpus import Corpus, Series
from tests.net.problems import answer_problem

pytestmark = pytest.mark.slow


def plant(series: Series, kind: str = "", work: int | None = None, **spec: Any) -> Answer:
    """Answers a question with less work, or with another fleet than was recorded."""
    documents: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(series.head.documents))
    for document in documents:
        if document["kind"] == kind:
            document["spec"].update(spec)
    head = msgspec.structs.replace(series.head, documents=documents, work=work or series.head.work)
    return answer_problem(replace(series, head=head))


def find_all(answer: Answer, compared: str) -> str:
    recorded = Corpus().read_answers()[answer.name]
    both = [*find_faults(recorded, answer, Comparison(compared)), *find_sum_faults([recorded], [answer], compared)]
    return "; ".join(both)


@pytest.mark.parametrize("compared", [DECISIONS, FIGURES])
def test_a_search_that_gives_up_early_is_dearer_and_proves_less(compared: str) -> None:
    faults = find_all(plant(Corpus().read("example-quickstart"), work=1), compared)
    assert re.search(r"\bcost [\d.]+, recorded", faults)
    assert re.search(r"\bbound [\d.]+, recorded", faults)


@pytest.mark.parametrize("compared", [DECISIONS, FIGURES])
def test_a_planner_that_sees_less_load_serves_less_although_it_costs_less(compared: str) -> None:
    faults = find_all(plant(Corpus().read("example-quickstart"), "Service", ratePerSecond=10.0), compared)
    assert "120 requests a second served, recorded 597" in faults


def test_moves_that_cost_more_are_another_decision() -> None:
    faults = find_all(plant(Corpus().read("family-A-16x12-running-30"), "Policy", movePrice=10.0), DECISIONS)
    assert re.search(r"another decision: churn [\d.]+, recorded", faults)
