"""Where nobody answers, a route counts as in force once it has been said for a while."""

from __future__ import annotations

from agents.gateway.followers import SETTLED_SECONDS, Followers
from agents.seams.routes import Route

OLD = Route("old", "shop/search", "10.0.0.1:9000", 10.0)
NEW = Route("new", "shop/search", "10.0.0.1:9001", 10.0)
GONE = Route("old", "shop/search", "10.0.0.1:9000", 10.0, drained=True)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_copy_is_routed_when_it_was_said_to_be_for_long_enough() -> None:
    clock = Clock()
    followers = Followers(clock)
    assert not followers.declare([NEW]).routes[0].ready
    clock.now += SETTLED_SECONDS
    assert followers.declare([NEW]).routes[0].ready
    heavier = Route(NEW.copy, NEW.service, NEW.address, 99.0)
    assert followers.declare([heavier]).routes[0].ready  # another weight is no other route


def test_a_copy_may_get_requests_for_a_while_after_it_was_drained() -> None:
    clock = Clock()
    followers = Followers(clock)
    followers.declare([OLD])
    clock.now += 60
    (state,) = followers.declare([GONE]).routes
    assert (state.ready, state.open_requests) == (False, 1)
    clock.now += SETTLED_SECONDS
    (state,) = followers.declare([GONE]).routes
    assert (state.ready, state.open_requests) == (False, 0)


def test_what_went_and_came_back_waits_again() -> None:
    clock = Clock()
    followers = Followers(clock)
    followers.declare([OLD])
    clock.now += 60
    assert followers.declare([]).routes == ()
    assert not followers.declare([OLD]).routes[0].ready
