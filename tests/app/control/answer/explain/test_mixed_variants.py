"""An explanation of a service with mixed variants states their mean accuracy and what each of them carries."""

from __future__ import annotations

from app.control.answer.explain.service import describe_service, why_service
from solvers.planning.problem import Problem
from tests.solvers.planning.parts.test_mixes import SERVICE, planned, world


def sentence(problem: Problem) -> list[str]:
    sentences = describe_service(problem, why_service(problem, planned(problem), SERVICE))
    return [text for text in sentences if "mean accuracy" in text]


def test_the_mean_and_the_promise_are_stated() -> None:
    (told,) = sentence(world(0.76))
    assert told.startswith("its requests have a mean accuracy of 0.76 by ")
    assert "large (" in told and "small (" in told and told.endswith("; promised are 0.76 or more")


def test_a_service_with_one_variant_and_no_promise_says_nothing_of_it() -> None:
    assert sentence(world(0.0, variants=("large",))) == []
