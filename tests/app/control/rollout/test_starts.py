"""A start may take what its template or probe allows, twice the longest one seen, and longer at each further try."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from agents.contract.assignments import AssignedInstance
from agents.contract.runtimes import OwnProbes, OwnRuntime
from app.control.domain.failures import PlaceFailure
from app.control.rollout.failing.starts import SeenStarts, read_seen_starts, start_limit
from app.control.rollout.life import begin
from app.control.rollout.rules import RolloutState
from tests.app.control.rollout.fleets import a_node, advance, all_serve, an_instance, rules

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "m-search/fp16/v100"


def limit(instance: AssignedInstance, seen: SeenStarts | None = None) -> float:
    return start_limit(instance, "n1", rules(start_seconds={KEY: 20.0}), seen or SeenStarts())


def test_a_start_may_take_what_its_profile_template_or_probe_allows_whichever_is_longest() -> None:
    assert limit(an_instance("a")) == 100
    assert limit(an_instance("a", template="triton")) == 300
    own = OwnRuntime(command=("serve",), probes=OwnProbes(start_seconds=240.0))
    assert limit(an_instance("a", template="", runtime=own)) == 240


def test_a_start_may_take_twice_as_long_as_the_longest_one_of_its_variant() -> None:
    assert limit(an_instance("a"), SeenStarts({KEY: 130.0, "other/fp16/v100": 900.0})) == 260


def test_each_further_try_has_twice_as_long_until_the_service_has_run_well() -> None:
    failures = tuple(PlaceFailure("shop/search", ("n1", gpu), at) for gpu, at in ((0, 1.0), (1, 1.0), (1, 60.0)))
    state = RolloutState(failures=failures, retried=("a",))
    assert limit(an_instance("a"), read_seen_starts(state)) == 800
    past = tuple(PlaceFailure(failure.owner, failure.place, failure.at, is_past=True) for failure in failures)
    assert limit(an_instance("a"), read_seen_starts(RolloutState(failures=past))) == 100


def test_a_rollout_remembers_the_longest_start_of_a_variant() -> None:
    target, state = {"n1": a_node(an_instance("a"))}, RolloutState()
    state = begin(state, {"n1": a_node()}, target, rules())
    begun = advance(target, {"n1": a_node()}, all_serve({}), state, rules(), NOW)
    served = advance(target, begun.desired, all_serve(target), begun.state, rules(), NOW + timedelta(seconds=42))
    assert served.done
    assert served.state.longest_starts == {KEY: 42.0}
    stored = msgspec.convert(msgspec.to_builtins(served.state), RolloutState)
    assert begin(stored, target, target, rules()).longest_starts == {KEY: 42.0}, "the next rollout goes on from it"
