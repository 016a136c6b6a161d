"""The memory guard's decisions, one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy.memory import (
    DeviceMemory,
    Guard,
    MemoryHolder,
    MemorySettings,
    Moves,
    Stopped,
    choose_fewest,
    free_gib,
    guard,
    headroom_gib,
    strangers_gib,
)

GPU = DeviceMemory(40.0)
PLAIN = MemorySettings(short_seconds=0.0, back_gib=1.0, back_seconds=30.0)


def service(name: str, limit: float, used: float | None = None) -> MemoryHolder:
    return MemoryHolder(name, limit, used)


def job(name: str, limit: float, used: float | None = None, **more: object) -> MemoryHolder:
    return MemoryHolder(name, limit, used, may_stop=True, **more)  # type: ignore[arg-type]


def look(before: Guard, holders: list[MemoryHolder], needed: float = 0.0, now: float = 0.0) -> tuple[Guard, Moves]:
    names = [holder.instance for holder in holders if holder.may_stop] + [job.instance for job in before.stopped]
    return guard(before, GPU, holders, needed, names, now, PLAIN)


def test_a_process_counts_with_what_it_may_grow_to_and_not_with_what_it_holds_now() -> None:
    assert free_gib(GPU, [service("s", 30.0, used=2.0)], PLAIN) == 10.0


def test_a_process_that_holds_more_than_its_limit_counts_with_what_it_holds() -> None:
    assert free_gib(GPU, [service("s", 30.0, used=31.5)], PLAIN) == 8.5


def test_what_the_driver_and_strangers_hold_is_not_given_away() -> None:
    device = DeviceMemory(40.0, used_gib=5.5)
    assert strangers_gib(device, [service("s", 30.0, used=5.0)]) == 0.5
    assert free_gib(device, [service("s", 30.0, used=5.0)], PLAIN) == 9.5


def test_the_larger_headroom_counts() -> None:
    assert headroom_gib(GPU, MemorySettings(headroom_gib=1.0, headroom_percent=5.0)) == 2.0
    assert headroom_gib(GPU, MemorySettings(headroom_gib=3.0, headroom_percent=5.0)) == 3.0
    assert free_gib(GPU, [], MemorySettings(headroom_gib=2.0)) == 38.0


def test_a_service_that_needs_room_gets_it_from_the_least_important_job_with_the_least_to_lose() -> None:
    holders = [
        service("s", 10.0),
        job("important", 10.0, priority=9.0),
        job("fresh", 10.0, unsaved_seconds=1.0),
        job("old", 10.0, unsaved_seconds=600.0),
    ]
    after, moves = look(Guard(), holders, needed=8.0)
    assert moves == Moves(stop=("fresh",))
    assert after.away == {"fresh"}


def test_no_job_is_stopped_that_need_not_be() -> None:
    holders = [job("small", 2.0), job("large", 12.0, unsaved_seconds=5.0), service("s", 26.0)]
    assert look(Guard(), holders, needed=10.0)[1].stop == ("large",)


def test_while_a_job_leaves_no_other_is_stopped_for_the_same_room() -> None:
    holders = [service("s", 20.0), job("a", 10.0), job("b", 10.0)]
    after, first = look(Guard(), holders, needed=5.0)
    later, second = look(after, holders, needed=5.0, now=1.0)
    assert (first.stop, second.stop) == (("a",), ())
    assert later.away == {"a"}


def test_a_job_that_leaves_for_another_reason_is_waited_for_too() -> None:
    holders = [service("s", 20.0), job("a", 10.0, leaving=True), job("b", 10.0)]
    assert look(Guard(), holders, needed=5.0)[1] == Moves()


def test_a_protected_job_never_stops() -> None:
    holders = [service("s", 30.0), MemoryHolder("precious", 8.0), job("a", 2.0)]
    assert look(Guard(), holders, needed=10.0)[1] == Moves(stop=("a",))


def test_a_service_that_took_more_than_its_limit_makes_a_job_go() -> None:
    holders = [service("s", 30.0, used=30.7), job("a", 10.0, used=9.0)]
    assert look(Guard(), holders)[1].stop == ("a",)


def test_a_momentary_shortage_stops_no_job() -> None:
    """The measurement of a second ago still contains a process that has ended since, and looks like a stranger's."""
    settings, full = MemorySettings(short_seconds=2.0), [service("s", 20.0, used=20.0), job("a", 20.0, used=20.0)]
    stale, fresh = DeviceMemory(40.0, 45.0), DeviceMemory(40.0, 40.0)
    state = Guard()
    for now, device in ((0.0, stale), (1.9, stale), (2.5, fresh), (3.0, stale), (4.9, stale)):
        state, moves = guard(state, device, full, 0.0, {"a"}, now, settings)
        assert moves == Moves()
    state, moves = guard(state, stale, full, 0.0, {"a"}, 5.0, settings)
    assert moves.stop == ("a",)
    assert guard(state, stale, full, 0.0, {"a"}, 5.1, settings)[1] == Moves()


def test_a_job_comes_back_when_there_has_been_room_and_some_to_spare_for_a_while() -> None:
    away = Guard((Stopped("a", 10.0, 0.0, since=0.0),))
    tight = [service("s", 29.5)]
    roomy = [service("s", 29.0)]
    assert look(away, tight, now=100.0) == (away, Moves())
    state, moves = look(away, roomy, now=100.0)
    assert moves == Moves()
    state, moves = look(state, roomy, now=129.0)
    assert moves == Moves()
    assert look(state, tight, now=129.5)[0].roomy_since is None  # it starts over
    back, moves = look(state, roomy, now=130.0)
    assert moves == Moves(bring_back=("a",))
    assert back == Guard()


def test_jobs_come_back_one_at_a_time_the_important_first_and_then_the_longest_away() -> None:
    away = Guard(
        (Stopped("b", 5.0, 0.0, 2.0), Stopped("a", 5.0, 0.0, 1.0), Stopped("c", 5.0, 1.0, 3.0)), roomy_since=0.0
    )
    order: list[str] = []
    for now in (40.0, 80.0, 120.0, 160.0, 200.0, 240.0):
        away, moves = look(away, [], now=now)
        order += moves.bring_back
    assert order == ["c", "a", "b"]


def test_a_job_that_has_not_left_yet_does_not_come_back() -> None:
    away = Guard((Stopped("a", 5.0, 0.0, 0.0),), roomy_since=0.0)
    assert look(away, [job("a", 5.0)], now=100.0)[1] == Moves()


def test_a_job_that_is_no_longer_wanted_is_forgotten() -> None:
    away = Guard((Stopped("a", 5.0, 0.0, 0.0),), roomy_since=0.0)
    assert guard(away, GPU, [], 0.0, (), 100.0, PLAIN) == (Guard(), Moves())


def test_a_service_that_comes_and_goes_does_not_make_a_job_come_and_go() -> None:
    state, holders, moved = Guard(), [job("a", 30.0)], 0
    for second in range(600):
        needed = 20.0 if second % 20 < 10 else 0.0
        state, moves = look(state, holders, needed, float(second))
        moved += len(moves.stop) + len(moves.bring_back)
        holders = [] if "a" in state.away else [job("a", 30.0)]
    assert moved == 1


jobs = st.lists(
    st.builds(
        lambda limit, priority, unsaved: (limit, priority, unsaved),
        st.integers(1, 20), st.integers(0, 2), st.integers(0, 3),
    ),
    max_size=8,
)  # fmt: skip


@given(jobs, st.integers(0, 100))
def test_the_stopped_jobs_suffice_if_any_do_and_none_is_superfluous(
    drawn: list[tuple[int, int, int]], needed: int
) -> None:
    candidates = [
        job(f"j{n}", float(limit), priority=float(priority), unsaved_seconds=float(unsaved))
        for n, (limit, priority, unsaved) in enumerate(drawn)
    ]
    chosen = choose_fewest(candidates, float(needed))
    freed = sum(holder.reach_gib for holder in chosen)
    total = sum(holder.reach_gib for holder in candidates)
    if total >= needed:
        assert freed >= needed
        assert all(freed - holder.reach_gib < needed for holder in chosen)
    else:
        assert len(chosen) == len(candidates)


@given(jobs)
def test_free_room_never_counts_less_than_everybody_grown_to_the_limit(drawn: list[tuple[int, int, int]]) -> None:
    holders = [job(f"j{n}", float(limit), used=float(used)) for n, (limit, used, _) in enumerate(drawn)]
    used = sum(holder.used_gib or 0.0 for holder in holders) + 3.0
    device = DeviceMemory(1000.0, used)
    assert free_gib(device, holders, PLAIN) == pytest.approx(1000.0 - 3.0 - sum(holder.reach_gib for holder in holders))
