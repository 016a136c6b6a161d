"""Two servers on one database are one API, whatever pauses and is cut; and the checker finds each kind of anomaly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from tests.proofs.histories.check import check
from tests.proofs.histories.history import ABSENT, Decision, History, Kind, Read, WatchEvent, WatchLog, Write
from tests.proofs.histories.record import record, town
from tests.support.soak import scaled


@pytest.mark.slow
def test_histories_of_two_servers_under_pauses_and_cuts_have_no_anomaly(database_url: str) -> None:
    with town(database_url) as made:
        for seed in range(scaled(1000, 2)):
            history = record(made, seed)
            assert check(history) == [], f"seed {seed}"
            assert history.decisions and any(history.polls.values()) and all(log.events for log in history.watches)


def written(name: str, value: int, version: int, at: float, **more: object) -> Write:
    write = Write(name, value, at, at + 1, version, versions=[version])
    for field, its in more.items():
        setattr(write, field, its)
    return write


def sound() -> History:
    """Object `a`: written, changed over version 1, deleted, created again; one change of `b` was never answered."""
    return History(
        writes=[
            written("a", 11, 1, 0, key="k"),
            written("a", 12, 2, 2, only_over=1),
            Write("a", 13, 4, 5, only_over=1, is_refused=True),
            written("a", ABSENT, 3, 6),
            written("a", 14, 4, 8, only_over=0),
            Write("b", 21, 8.5),
            written("b", 22, 6, 10),
        ],
        reads=[
            Read("a", 11, 1, 1.5, 1.8), Read("a", 12, 2, 4, 4.5), Read("a", ABSENT, 0, 7.2, 7.8),
            Read("a", 14, 4, 9.5, 9.9), Read("b", 21, 5, 9.2, 9.6), Read("b", 22, 6, 11.5, 12),
        ],
        watches=[
            WatchLog(0, [
                WatchEvent(1, "a", 11), WatchEvent(2, "a", 12), WatchEvent(3, "a", ABSENT), WatchEvent(4, "a", 14),
                WatchEvent(5, "b", 21), WatchEvent(6, "b", 22),
            ])
        ],
        decisions=[Decision("n", 1, 1, 1, "x"), Decision("n", 2, 1, 2, "x"), Decision("n", 3, 2, 3, "y")],
        polls={"n": [Decision("n", 1, 1, 1), Decision("n", 3, 2, 3)]},
    )  # fmt: skip


def _swap(log: WatchLog, at: int) -> None:
    log.events[at], log.events[at + 1] = log.events[at + 1], log.events[at]


PLANTS: list[tuple[Kind, Callable[[History], object]]] = [
    ("lost update", lambda h: h.writes.append(written("a", 15, 7, 12, only_over=2))),
    ("lost update", lambda h: h.writes.append(written("a", 15, 7, 12, only_over=0))),
    ("stale read", lambda h: h.reads.append(Read("a", 11, 1, 3.5, 3.9))),
    ("stale read", lambda h: h.reads.append(Read("a", ABSENT, 0, 3.5, 3.9))),
    ("stale read", lambda h: h.reads.append(Read("b", 21, 5, 12.5, 13))),
    ("phantom read", lambda h: h.reads.append(Read("a", 99, 9, 13, 14))),
    ("phantom read", lambda h: h.reads.append(Read("a", 13, 9, 13, 14))),
    ("read of the future", lambda h: h.reads.append(Read("a", 14, 4, 7.1, 7.9))),
    ("two effects of one write", lambda h: h.writes[0].versions.append(7)),
    ("two effects of one write", lambda h: h.watches[0].events.append(WatchEvent(7, "a", 11))),
    ("two effects of one write", lambda h: h.writes.append(written("c", 31, 6, 12))),
    ("order of writes", lambda h: h.writes.append(written("c", 31, 0.5, 12))),  # type: ignore[arg-type]
    ("false refusal", lambda h: h.writes.append(Write("a", 16, 13, 14, only_over=4, is_refused=True))),
    ("watch gap", lambda h: h.watches[0].events.pop(1)),
    ("watch gap", lambda h: h.watches[0].events.pop(3)),
    ("watch repeat", lambda h: h.watches[0].events.insert(2, WatchEvent(2, "a", 12))),
    ("watch repeat", lambda h: h.watches[0].events.insert(4, WatchEvent(1, "a", 11))),
    ("watch order", lambda h: _swap(h.watches[0], 2)),
    ("watch value", lambda h: h.watches[0].events.__setitem__(1, WatchEvent(2, "a", 11))),
    ("two leaders", lambda h: h.decisions.append(Decision("n", 4, 2, 4, "x"))),
    ("old leader", lambda h: h.decisions.append(Decision("n", 4, 1, 4, "x"))),
    ("poll goes back", lambda h: h.polls["n"].append(Decision("n", 1, 1, 1))),
    ("poll of nothing", lambda h: h.polls["n"].append(Decision("n", 4, 2, 4))),
]  # fmt: skip


def test_each_kind_of_anomaly_is_planted() -> None:
    assert {kind for kind, _ in PLANTS} == {*get_args(Kind)}


def test_a_history_without_an_anomaly_has_none() -> None:
    assert check(sound()) == []


@pytest.mark.parametrize(("kind", "plant"), PLANTS, ids=[f"{n}-{kind}" for n, (kind, _) in enumerate(PLANTS)])
def test_a_planted_anomaly_is_found(kind: Kind, plant: Callable[[History], object]) -> None:
    history = copy.deepcopy(sound())
    plant(history)
    assert kind in {anomaly.kind for anomaly in check(history)}


def test_a_write_without_an_answer_may_take_effect_late_or_never() -> None:
    history = sound()
    history.writes.append(Write("a", 17, 1))
    history.reads.append(replace(history.reads[3], value=17, version=7, began=20, ended=21))
    history.watches[0].events.append(WatchEvent(7, "a", 17))
    assert check(history) == []
