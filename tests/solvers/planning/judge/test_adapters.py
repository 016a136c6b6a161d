"""The judge and LoRA adapters: places take memory, mixed adapters lengthen iterations, too few places are named."""

from __future__ import annotations

from dataclasses import fields, replace
from math import floor

import pytest

from solvers.planning.fleet.token_services import TokenFacts
from solvers.planning.fleet.token_shapes import list_shapes
from solvers.planning.judge import judge
from solvers.planning.judge.adapters import keep_places
from solvers.planning.judge.whole import iterations, kv_tokens
from solvers.planning.language import AdapterPlaces, EngineForm, LoraAdapter, ServerMemory
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Problem, Service
from solvers.planning.wide.reasons import reason_of
from tests.solvers.planning.wide.wide_fleets import CHAT, COSTS, TOKENS, chat, fleet, wide

KEY = ("chat", "fp16", "a100")
PLACES = AdapterPlaces(places=40, max_rank=16, place_gib=0.25, slowdown=0.2)


def adapted(count: int, rank: int = 16) -> Service:
    held = tuple(LoraAdapter(f"a{at}", f"adapters/a{at}", rank) for at in range(count))
    return chat(tokens=replace(TOKENS, adapters=held))


def on(service: Service, places: AdapterPlaces | None = PLACES) -> Problem:
    problem = fleet(service)
    return replace(problem, profiles={**problem.profiles, KEY: replace(problem.profiles[KEY], adapters=places)})


def test_a_place_takes_memory_of_each_gpu_and_iterations_take_longer() -> None:
    problem = on(adapted(3))
    profile = keep_places(problem.profiles[KEY], problem.services["shop/chat"])
    cost, limits = iterations(profile, CHAT, problem.gpu_types["a100"], 4, 64, 80.0, 1410.0, 0.0)
    # Forty places are kept, however few are taken: 10 GiB of each of the four GPUs.
    assert limits.kv_tokens == floor(((80.0 - 4.0 - 40 * 0.25) * 4 - 130.0) * 2**30 / 327_680.0)
    for part in fields(cost):
        assert getattr(cost, part.name) == pytest.approx(1.2 * getattr(COSTS[4], part.name))
    assert keep_places(problem.profiles[KEY], chat()) is problem.profiles[KEY]


def test_what_a_server_said_of_its_cache_without_adapters_shrinks_by_their_places() -> None:
    problem = on(adapted(3))
    said = replace(problem.profiles[KEY], engine={4: ServerMemory(200_000, EngineForm())})
    held = kv_tokens(keep_places(said, problem.services["shop/chat"]), CHAT, 4, 80.0)
    assert held == 200_000 - 40 * 0.25 * 4 * 2**30 / 327_680


@pytest.mark.parametrize(
    ("service", "places", "word"),
    [
        (adapted(3), None, "the profile of chat on a100 states no places for adapters"),
        (adapted(41), PLACES, "has 40 places for adapters, fewer than 41"),
        (adapted(3, rank=32), PLACES, "holds adapters up to rank 16, not 32"),
    ],
)
def test_an_instance_that_does_not_hold_them_is_refused_and_planners_offer_none(
    service: Service, places: AdapterPlaces | None, word: str
) -> None:
    problem = on(service, places)
    (violation,) = judge(problem, Plan((wide(),)), simulate=False).violations
    assert (violation.rule, word in violation.sentence) == ("adapters_held", True)
    assert list_shapes(TokenFacts.of(problem), service) == []
    assert word in reason_of(problem, Unserved(service.name, 1.0, "", "")).reason


def test_memory_that_the_places_leave_too_short_is_refused() -> None:
    assert not judge(on(adapted(40)), Plan((wide(),)), simulate=False).violations
    (violation,) = judge(on(adapted(40), replace(PLACES, place_gib=1.1)), Plan((wide(),)), simulate=False).violations
    assert violation.rule == "tokens_fit"


@pytest.mark.slow
def test_adapters_never_raise_what_an_instance_carries() -> None:
    plain = {shape.degree: shape.rate_per_second for shape in list_shapes(TokenFacts.of(on(chat())), chat())}
    service = adapted(40)
    for shape in list_shapes(TokenFacts.of(on(service)), service):
        assert 0 < shape.rate_per_second < plain[shape.degree]
