"""Sizes of the example's language models: limits, costs, and promises judged by requests that no search has seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.control.formulate.problem import build_problem
from simulation.world import read_files
from solvers.planning.language import TokenPromise
from solvers.planning.problem import Problem
from solvers.pools.confirm import ConfirmedServers
from solvers.pools.links import NETWORK, NVLINK, ServerLink
from solvers.pools.servers import DeclaredRequests, RequestTrial
from solvers.pools.size import ServerMarket, ServiceSize, size_service

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "language-models.yaml"
PRICES = {"a100-80gb": 2.0, "h100-80gb": 4.0}


def make_network(gbit: float, price_per_gib: float = 0.0) -> ServerLink:
    return ServerLink(NETWORK, dict.fromkeys(PRICES, gbit), price_per_gib)


MARKET = ServerMarket(dict.fromkeys(PRICES, 64), PRICES, [make_network(200.0)])
LOOSE, TIGHT = TokenPromise(1000, 50, 95), TokenPromise(600, 15, 95)
OTHER_SEED = 99


@pytest.fixture(scope="module")
def problem() -> Problem:
    return build_problem(read_files(EXAMPLE))


def size_summaries(problem: Problem, promise: TokenPromise, rate: float, market: ServerMarket = MARKET) -> ServiceSize:
    service = problem.services["shop/summaries"]
    assert service.tokens
    tokens = replace(service.tokens, promise=promise)
    return size_service(problem, replace(service, tokens=tokens, rate_per_second=rate), market)


def list_confirmed(size: ServiceSize) -> list[ConfirmedServers[Any]]:
    return [
        confirmed
        for confirmed in (size.together, size.parts.confirmed if size.parts else None, size.apart)
        if confirmed
    ]


@pytest.mark.parametrize("promise", [LOOSE, TIGHT])
@pytest.mark.parametrize("rate", [5.0, 60.0])
def test_each_form_keeps_the_promise_for_requests_that_its_search_has_not_seen(
    problem: Problem, promise: TokenPromise, rate: float
) -> None:
    found = size_summaries(problem, promise, rate)
    tokens = found.service.tokens
    assert tokens
    for confirmed in list_confirmed(found):
        source = DeclaredRequests(replace(tokens.lengths, context_tokens=8192))
        shares = confirmed.servers.simulate(RequestTrial(source, promise, rate, 100_000, OTHER_SEED))
        assert min(shares.ttft, shares.tpot) >= 0.95 - 0.004, (
            confirmed
        )  # of 100,000 requests, which wait for each other
        assert confirmed.servers.cost_per_hour == sum(
            MARKET.price_per_hour[name] * gpus for name, gpus in confirmed.servers.gpu_counts.items()
        )


def test_a_tight_pace_makes_what_answers_wait_for_dear_and_a_loose_one_does_not(problem: Problem) -> None:
    tight, loose = (size_summaries(problem, promise, 60.0) for promise in (TIGHT, LOOSE))
    assert tight.together
    assert tight.parts
    assert tight.apart
    assert tight.parts.confirmed.servers.cost_per_hour < 0.75 * tight.together.servers.cost_per_hour
    assert tight.apart.servers.cost_per_hour < 0.75 * tight.together.servers.cost_per_hour
    assert tight.saving_per_hour == max(0.0, tight.parts.confirmed.price_per_hour - tight.apart.price_per_hour)
    assert (loose.parts, loose.saving_per_hour) == (None, 0.0)
    assert loose.cheapest == "together"
    assert loose.why.startswith("apart does not pay: two pools cost ")


def test_what_two_pools_save_is_explained_by_what_their_servers_carry(problem: Problem) -> None:
    found = size_summaries(problem, TIGHT, 120.0, replace(MARKET, most_gpus={"a100-80gb": 64}))
    assert found.parts
    assert found.apart
    assert found.saving_per_hour == found.parts.confirmed.price_per_hour - found.apart.price_per_hour > 0
    assert found.cheapest == "apart"
    assert found.why.startswith(f"apart saves {found.saving_per_hour:.4g} an hour since TPOT is tight: a server of ")
    assert "requests/s within 15 ms a token; one of 2 a100-80gb that computes their prompts, too, serves" in found.why


def test_a_slow_link_makes_two_pools_impossible_and_too_few_gpus_allow_nothing(problem: Problem) -> None:
    quick, slow = (
        size_summaries(problem, TIGHT, 60.0, replace(MARKET, links=[make_network(gbit)])).apart for gbit in (200.0, 1.0)
    )
    assert quick
    assert slow is None, "the keys and values of a mean prompt take 944 ms"
    nothing = size_summaries(problem, TIGHT, 60.0, replace(MARKET, most_gpus={"a100-80gb": 1}))
    assert (nothing.together, nothing.apart, nothing.saving_per_hour, nothing.cheapest) == (None, None, 0.0, "")
    assert nothing.why == "nothing that may be rented keeps the promise"


def test_the_price_of_the_network_counts_and_nvlink_spares_it(problem: Problem) -> None:
    """A network that charges makes two pools dearer by just that, until cells within nodes are cheaper."""
    nvlink = ServerLink(NVLINK, {"h100-80gb": 3600.0}, most_gpus=8)
    free, cheap, dear = (
        size_summaries(problem, TIGHT, 60.0, replace(MARKET, links=[nvlink, make_network(200.0, price)])).apart
        for price in (0.0, 1e-5, 1.0)
    )
    assert free
    assert cheap
    assert dear
    assert free.servers.sent.link.kind == cheap.servers.sent.link.kind == NETWORK
    gib_per_hour = 60.0 * 900 * 131_072 * 3600 / 1024**3
    assert cheap.price_per_hour == pytest.approx(free.price_per_hour + 1e-5 * gib_per_hour)
    assert dear.servers.sent.link.kind == NVLINK
    assert free.price_per_hour < dear.price_per_hour < free.price_per_hour + gib_per_hour
    assert dear.servers.sent.price_per_hour == 0
    assert sum(dear.servers.gpu_counts.values()) <= 8 * dear.servers.cells


@pytest.mark.parametrize("promise", [LOOSE, TIGHT])
def test_the_answer_is_never_dearer_than_servers_that_do_both(problem: Problem, promise: TokenPromise) -> None:
    for rate in (1.0, 44.0):
        found = size_summaries(problem, promise, rate)
        forms = {"together": found.together, "parts": found.parts and found.parts.confirmed, "apart": found.apart}
        chosen = forms[found.cheapest]
        assert chosen
        assert chosen.price_per_hour <= min(each.price_per_hour for each in forms.values() if each) + 0.01
