"""Callers take turns to read large inputs, and too many are sent away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from app.worker.places import Places, WorkersBusy
from tests.support.patience import patience, until


class Visitors:
    """Callers in threads of their own, each at work until the test ends it."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.came: list[str] = []
        self._ends: list[tuple[threading.Event, threading.Thread]] = []

    def send(self, caller: str) -> threading.Event:
        end = threading.Event()
        thread = threading.Thread(target=self._visit, args=[caller, end])
        self._ends.append((end, thread))
        held = self.places._held.total()
        thread.start()
        until(lambda: self.places._held.total() > held, f"{caller} has no place")
        return end

    def _visit(self, caller: str, end: threading.Event) -> None:
        with self.places.turn(caller, patience()):
            self.came.append(caller)
            end.wait(patience())

    def end(self) -> None:
        for end, _ in self._ends:
            end.set()
        for _, thread in self._ends:
            thread.join(patience())
            assert not thread.is_alive()


@contextmanager
def visitors(workers: int, waiting: int) -> Iterator[Visitors]:
    with ExitStack() as after:
        found = Visitors(Places(workers, waiting))
        after.callback(found.end)
        yield found


def test_one_caller_has_half_of_the_places_and_leaves_the_rest_to_others() -> None:
    with visitors(2, 8) as found:
        for _ in range(5):
            found.send("flood")
        with pytest.raises(WorkersBusy), found.places.turn("flood", patience()):
            pass
        for n in range(5):
            found.send(f"other-{n}")
        with pytest.raises(WorkersBusy), found.places.turn("late", patience()):
            pass


def test_the_next_turn_is_that_of_a_caller_who_is_not_at_work_already() -> None:
    with visitors(2, 8) as found:
        first = found.send("flood")
        for _ in range(3):
            found.send("flood")
        until(lambda: len(found.came) == 2)
        found.send("other")
        first.set()
        until(lambda: len(found.came) == 3)
        assert found.came == ["flood", "flood", "other"]


def test_who_waits_for_too_long_is_told_so_and_gives_the_place_back() -> None:
    with visitors(1, 3) as found:
        found.send("slow")
        for _ in range(5):
            with pytest.raises(WorkersBusy), found.places.turn("other", 0.01):
                pass
    assert not found.places._held
    assert not found.places._working
