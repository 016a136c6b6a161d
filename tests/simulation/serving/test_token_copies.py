"""A simulated copy of a language model, against the server token by token; and how requests are spread over copies."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from agents.contract.assignments import AssignedInstance, Assignment
from agents.keeper.copies import NodeCopy, Stage
from app.control.formulate.problem import build_problem
from simulation.clock import Clock
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.plan_execution import carry_out
from simulation.fleet_truth import FleetTruth
from simulation.serving import tokens as of
from simulation.serving.token_copies import TokenServer, TokenWork, spread
from simulation.world import read_documents
from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.judged import holds
from solvers.llm.streams import TokenStream, stream
from solvers.planning.solve import SolveBudget, solve
from tests.simulation.worlds import Document, chat, gpu_type, model, node, policy, profile, service
from tests.solvers.llm import reference
from tests.solvers.llm.test_served import drawn

CONTEXT = 1_000_000
COPY = NodeCopy("one", AssignedInstance("one", 0, tpot_ms=1.0, rate_per_second=1.0), "gpu")


def between(values: list[float], rank: float) -> float:
    """Returns a value that no time is near to: between two neighbours of the sorted times."""
    ordered = sorted(values)
    place = int(rank * len(ordered))
    return (ordered[place - 1] + ordered[place]) / 2 if 0 < place < len(ordered) else ordered[-1] + 1.0


def over(measured_ms: float, promised_ms: float) -> bool:
    return measured_ms > promised_ms * (1 + 1e-9)


def served(work: TokenWork, requests: TokenStream, until: float, tick: float) -> None:
    """Serves requests, whose arrivals are seconds, tick by tick."""
    at = 0.0
    while at < until:
        now = min(until, at + tick)
        chosen = (requests.arrivals >= at) & (requests.arrivals < now)
        spread([(COPY, work)], requests.of(chosen))
        work.serve(COPY, at, now, np.ones(1))
        at = now


@pytest.mark.slow
def test_ticks_and_arrivals_one_by_one_serve_as_the_reference_does_token_by_token() -> None:
    preemptions = late = slow = 0
    for seed in range(150):
        cost, limits, requests, rate = drawn(seed)
        found = reference.simulate(
            cost, limits, (requests.arrivals * 1000.0 / rate).tolist(), requests.inputs.tolist(),
            requests.outputs.tolist(), requests.cached.tolist(),
        )  # fmt: skip
        answered = [request for request in found.requests if request.token_times_ms]
        if not answered:
            continue
        promise = TokenPromise(
            between([request.ttft_ms for request in answered], 0.6),
            between([request.tpot_ms for request in answered if request.output_tokens > 1] or [0.0], 0.6), 50.0,
        )  # fmt: skip
        work = TokenWork()
        work.set_server(TokenServer(cost, limits, CONTEXT, promise, inf))
        arrivals = TokenStream(requests.arrivals / rate, requests.inputs, requests.outputs, requests.cached)
        until = found.end_ms / 1000 + 0.01
        served(work, arrivals, until, until / (1 + seed % 7))
        lates = [over(request.ttft_ms, promise.ttft_ms) for request in answered]
        slows = [request.output_tokens > 1 and over(request.tpot_ms, promise.tpot_ms) for request in answered]
        sums = work.token_sums()
        assert not work.waits
        assert work.busy_seconds * 1000 == pytest.approx(found.busy_ms, rel=1e-9)
        assert (sums[of.LATE], sums[of.PACE_LATE]) == (sum(lates), sum(slows))
        assert work.within == sum(not a and not b for a, b in zip(lates, slows, strict=True))
        assert (work.errors, sums[of.PREEMPTIONS]) == (found.too_long, found.preemptions)
        assert sums[of.TOKENS_OUT] == sum(request.output_tokens for request in answered)
        preemptions, late, slow = preemptions + found.preemptions, late + sum(lates), slow + sum(slows)
    assert min(preemptions, late, slow) > 30


@pytest.mark.slow
def test_a_copy_keeps_promises_as_often_as_the_judge_says() -> None:
    cost, limits = IterationCost(3.0, 0.03, 6.0, 0.02, 5e-5), BatchingLimits(32, 2048, 60_000)
    lengths = TokenLengths(600.0, 1500.0, 80.0, 200.0, 0.2, 8192)
    promise, rate, count = TokenPromise(45.0, 13.0, 80.0), 14.0, 30_000
    judged = holds(cost, limits, lengths, promise, rate)
    drawn_ones = stream(lengths, count, 5)
    work = TokenWork()
    work.set_server(TokenServer(cost, limits, lengths.context_tokens, promise, inf))
    arrivals = TokenStream(drawn_ones.arrivals / rate, drawn_ones.inputs, drawn_ones.outputs, drawn_ones.cached)
    served(work, arrivals, float(arrivals.arrivals[-1]) + 60, 1000.0)
    sums = work.token_sums()
    assert 0.6 < judged.ttft.share < 0.95
    assert 0.6 < judged.tpot.share < 0.99
    assert 1 - sums[of.LATE] / count == pytest.approx(judged.ttft.share, abs=0.015)
    assert 1 - sums[of.PACE_LATE] / sums[of.PACED] == pytest.approx(judged.tpot.share, abs=0.015)


def constant(count: int, gap: float) -> TokenStream:
    """Returns requests of 100 tokens in and 11 out."""
    return TokenStream(
        gap * np.arange(1.0, count + 1), np.full(count, 100), np.full(count, 11), np.zeros(count, dtype=np.int64)
    )


def test_alone_a_request_takes_what_its_iterations_take() -> None:
    """11 iterations of 10 ms: the first token comes after one, and each other after one more."""
    for ttft, tpot, within in ((10.01, 10.01, 50), (9.99, 10.01, 0), (10.01, 9.99, 0)):
        work = TokenWork()
        server = TokenServer(
            IterationCost(10.0, 0.0), BatchingLimits(8, 512, 10_000), 4096, TokenPromise(ttft, tpot, 99)
        )
        work.set_server(server)
        served(work, constant(50, 0.2), 11.0, 0.5)
        assert (work.within, work.requests) == (within, 50)
        assert work.busy_seconds == pytest.approx(50 * 0.11)


def test_requests_go_where_fewest_are_open_by_weight() -> None:
    server = TokenServer(IterationCost(10.0, 0.0), BatchingLimits(64, 4096, 100_000), 4096, TokenPromise(1e6, 1e6, 99))
    copies = [
        (NodeCopy(name, AssignedInstance(name, 0, rate_per_second=weight), "gpu"), TokenWork())
        for name, weight in (("one", 1.0), ("three", 3.0))
    ]
    for _, work in copies:
        work.set_server(server)
    spread(copies, constant(40, 0.0001))  # none of them ends before the last arrives
    assert [work.given for _, work in copies] == [10, 30]
    one, three = (work for _, work in copies)
    one.fail()
    assert (one.errors, one.waits) == (10, False)
    three.serve(COPY, 0.0, 1.0, np.ones(1))
    assert (three.requests, three.errors, three.waits) == (30, 0, False)


def test_who_waits_too_long_to_be_admitted_leaves() -> None:
    """One request at once takes 1.1 s; a caller waits 2 s, so those of the first three seconds' queue are served."""
    server = TokenServer(
        IterationCost(100.0, 0.0), BatchingLimits(1, 512, 10_000), 4096, TokenPromise(1e6, 1e6, 99), 2.0
    )
    work = TokenWork()
    work.set_server(server)
    served(work, constant(10, 0.001), 30.0, 1.0)
    assert (work.within, work.errors) == (2, 8)


def test_requests_that_no_longer_fit_a_server_with_less_memory_are_errors() -> None:
    work, promise = TokenWork(), TokenPromise(1e6, 1e6, 99)
    for tokens in (10_000, 50):  # a request needs 101 of them
        work.set_server(TokenServer(IterationCost(100.0, 0.0), BatchingLimits(2, 512, tokens), 4096, promise, inf))
        if tokens == 10_000:
            served(work, constant(4, 0.001), 0.3, 0.1)
    work.serve(COPY, 0.3, 5.0, np.ones(1))
    assert (work.within, work.errors, work.waits) == (0, 4, False)


def redeclared(fleet: SimulatedFleet, clock: Clock, *documents: Document) -> None:
    """Declares the world of `fleet` again, with these documents, and goes on for two minutes."""
    fleet.follow(FleetTruth(build_problem(read_documents([gpu_type(), policy(), node("node-0"), *documents]))))
    for _ in range(120):
        clock.advance(1.0)
        fleet.tick()


@pytest.mark.slow
def test_a_copy_outlives_what_is_declared_of_its_model() -> None:
    """Its profile leaves no memory for tokens, and then its service promises no times of tokens any more."""
    problem, clock = build_problem(read_documents([gpu_type(), policy(), node("node-0"), *chat([1])])), Clock()
    fleet = SimulatedFleet(FleetTruth(problem), clock, seed=4)
    carry_out(fleet, solve(problem, SolveBudget(seconds=None, work=2)))
    redeclared(fleet, clock, *chat([1]))
    total = fleet.services["shop/chat"]
    answered = total.answered
    assert answered > 50
    sizes, larger, promised = chat([1])
    redeclared(fleet, clock, sizes, larger | {"spec": larger["spec"] | {"overheadGib": 13}}, promised)
    assert total.answered > answered
    redeclared(fleet, clock, model("chat"), profile("chat"), service("chat", 3.0))
    assert total.refused > 50, "copies of the language model understand no request without tokens"
    assert total.answered + total.errors == total.requests


@pytest.mark.slow
def test_streams_on_several_gpus_end_before_their_copy_does() -> None:
    """A fleet of one server on two GPUs: while its copies drain, new requests find none, and open ones are answered."""
    problem = build_problem(read_documents([gpu_type(), policy(), node("node-0"), *chat([2])]))
    plan = solve(problem, SolveBudget(seconds=None, work=2))
    (line,) = plan.instances
    assert line.degree == 2
    clock = Clock()
    fleet = SimulatedFleet(FleetTruth(problem), clock, seed=4)
    carry_out(fleet, plan)
    for _ in range(120):
        clock.advance(1.0)
        fleet.tick()
    total, (copy,) = fleet.services["shop/chat"], fleet.serving()["shop/chat"]
    assert copy.running > 0
    assert total.answered > 50
    refused = total.refused
    fleet.nodes[line.node].offer(Assignment(line.node, 2, 1, 2))
    for _ in range(60):
        clock.advance(1.0)
        fleet.tick()
    assert not any(copy.stage is not Stage.GONE for copy in fleet.nodes[line.node].copies.values())
    assert total.refused > refused
    assert total.errors == total.refused
    assert total.answered + total.errors == total.requests
