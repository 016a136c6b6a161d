"""A trace of requests in a file: sorted times by service, and every fault named with its line and what is allowed."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.measure.load_tables import LoadRefused
from simulation.measure.requests import make_shapes, read_requests
from simulation.serving.arrivals import PlayedRequests, RequestTimes, make_requests_at
from solvers.llm.iteration import TokenLengths

SERVICES = {"shop/a": 2.0, "shop/b": 10.0}


def test_requests_come_in_any_order_with_or_without_tokens() -> None:
    found = read_requests("service,seconds\nshop/a,7.5\nshop/b,1\nshop/a,2\n", "t.csv", SERVICES)
    assert {name: found[name].times.tolist() for name in found} == {"shop/a": [2.0, 7.5], "shop/b": [1.0]}
    assert found["shop/a"].inputs.tolist() == [0, 0]
    with_tokens = "seconds,service,inputTokens,outputTokens\n3,shop/a,100,20\n1,shop/a,,7\n2,shop/a,90,\n"
    traced = read_requests(with_tokens, "t.csv", SERVICES)["shop/a"]
    assert (traced.times.tolist(), traced.inputs.tolist()) == ([1.0, 2.0, 3.0], [0, 90, 100])
    assert traced.outputs.tolist() == [7, 0, 20]


def test_lengths_that_are_drawn_leave_room_in_the_context_for_those_of_the_trace() -> None:
    given, none = np.full(200, 995), np.zeros(200, dtype=np.int64)
    lengths = TokenLengths(400.0, 800.0, 100.0, 200.0, 0.0, 1000)
    times = np.arange(200.0)
    for inputs, outputs in ((given, none), (none, given)):
        arrivals = RequestTimes(1)
        arrivals.trace = {"shop/a": PlayedRequests(times, inputs, outputs)}
        known = arrivals.times("shop/a", 0.0, 200.0, 1.0)
        assert known is not None
        found = arrivals.draw_with_lengths("shop/a", lengths, known)
        assert (found.inputs + found.outputs).max() == 1000
        assert min(found.inputs.min(), found.outputs.min()) >= 1


def test_the_rate_of_a_trace_is_that_of_the_requests_around() -> None:
    shapes = make_shapes({"shop/a": make_requests_at(np.arange(0.0, 600.0, 0.25))}, SERVICES)
    assert shapes["shop/a"](300.0) == pytest.approx(4.0 / SERVICES["shop/a"], rel=0.02)
    assert shapes["shop/a"](900.0) == shapes["shop/b"](300.0) == 0.0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "seconds\n1\n",
            "t.csv:1: no column service; the header must have the columns seconds,service, each once",
        ),
        ("seconds,service,tokens\n", "column 'tokens' is not expected there"),
        ("seconds,service\n", "t.csv has no row below its header; give at least one: seconds,service"),
        (
            "seconds,service\n1,shop/c\n",
            "t.csv:2: service 'shop/c' is not declared in the manifests; declared: shop",
        ),
        (
            "seconds,service\nx,shop/a\n",
            "t.csv:2: seconds 'x' is not allowed: a number from 0 to 1,000,000,000, counted from the start",
        ),
        (
            "seconds,service,inputTokens\n1,shop/a,1.5\n",
            "t.csv:2: inputTokens '1.5' is not allowed: a whole number from 1 to 2,000,000, or nothing",
        ),
        ("seconds,service\n1_0,shop/a\n", "t.csv:2: seconds '1_0' is not allowed: a number from 0 to"),
        (
            "seconds,service,inputTokens\n1,shop/a,1_5\n",
            "t.csv:2: inputTokens '1_5' is not allowed: a whole number from 1 to 2,000,000, or nothing",
        ),
        ("seconds,service\n1,shop/a,3\n", "t.csv:2: the row has another number of fields than the header, which has 2"),
    ],
)
def test_a_fault_names_its_line_and_what_is_allowed(text: str, fault: str) -> None:
    with pytest.raises(LoadRefused) as refused:
        read_requests(text, "t.csv", SERVICES)
    (found,) = refused.value.faults
    assert fault in found
