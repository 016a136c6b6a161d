"""A small fleet with a language model beside an ordinary service, whose load rises and falls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulation.measure.requests import make_shapes
from simulation.measure.run import SimulationOrder, simulate
from simulation.serving.arrivals import PlayedRequests
from simulation.shapes import Shape, steady
from simulation.world import read_documents
from tests.simulation.worlds import chat, gpu_type, model, node, policy, profile, service
from tests.support.postgres import DatabaseServer

pytestmark = pytest.mark.slow

OF_THE_MACHINE = {"seconds", "requestsPerSecondPerCore"}


def order(shapes: Mapping[str, Shape], hours: float) -> SimulationOrder:
    documents = [gpu_type(), policy(pricing="gpu"), node("node-0"), node("node-1"), node("node-2")]
    world = read_documents([*documents, model("a"), profile("a"), service("a", 60.0), *chat()])
    return SimulationOrder(world, shapes, hours, 3, 2, 5.0, is_compared=False)


def run(postgres: DatabaseServer, asked: SimulationOrder) -> Mapping[str, Any]:
    url = postgres.create()
    try:
        figures = simulate(url, asked).figures
    finally:
        postgres.drop(url)
    return {name: value for name, value in figures.items() if name not in OF_THE_MACHINE}


def rising(seconds: float) -> float:
    """Returns a load that rises slowly to four times, and falls as slowly to its beginning."""
    return 1.0 + 3.0 * max(0.0, 1.0 - abs(seconds - 1000.0) / 600.0)


def test_copies_come_and_go_with_the_load_and_no_stream_is_cut(postgres: DatabaseServer) -> None:
    found = run(postgres, order({"shop/chat": rising, "shop/a": steady}, 0.75))
    assert found["attainment"]["shop/chat"]["worstHour"] > 0.95
    assert found["attainment"]["shop/a"]["worstHour"] > 0.98
    assert min(found["changes"]["start"], found["changes"]["stop"]) >= 1
    assert found["shedRequests"] == 0
    assert found["accuracy"]["shop/chat"] == 0.6


def test_a_trace_gives_the_tokens_of_its_requests_and_the_same_seed_the_same_figures(postgres: DatabaseServer) -> None:
    """Short prompts keep the promise; every fourth fills the context, and fails. Outputs are drawn."""
    times = np.arange(0.05, 540.0, 0.5)
    inputs = np.where(np.arange(len(times)) % 4 == 0, 4096, 50)
    trace = {"shop/chat": PlayedRequests(times, inputs, np.zeros(len(times), dtype=np.int64))}
    asked = replace(order(make_shapes(trace, {"shop/chat": 3.0, "shop/a": 60.0}), 0.15), requests=trace)
    found = run(postgres, asked)
    assert found["attainment"]["shop/chat"]["share"] == 0.75
    assert run(postgres, asked) == found
