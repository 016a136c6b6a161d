"""The lane of a request by its path."""

from __future__ import annotations

import pytest

from app.http.lanes import CONSOLE, LOGS_PAGE, QUESTION, lane_of


@pytest.mark.parametrize("path", ["/services/shop/a/explain", "/services/shop/a/price", "/services/shop/price/price"])
def test_a_page_that_asks_the_solver_delays_no_other_page(path: str) -> None:
    assert lane_of("GET", path) is QUESTION


@pytest.mark.parametrize(
    "path", ["/services/shop/explain", "/services/shop/price", "/plans/price", "/jobs/a/b/explain"]
)
def test_a_name_makes_no_page_of_a_service_lighter(path: str) -> None:
    assert lane_of("GET", path) is CONSOLE


@pytest.mark.parametrize("path", ["/services/shop/a/logs", "/jobs/lab/tune/logs"])
def test_a_page_that_waits_for_nodes_takes_no_place_of_one_that_reads(path: str) -> None:
    assert lane_of("GET", path) is LOGS_PAGE
