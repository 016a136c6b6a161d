"""Changes that save nothing are taken back; the GPUs that a batch empties stay empty."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from benchmarks.families import family
from solvers.planning.batches.sparing import SparedChanges
from solvers.planning.problem import RunningState
from solvers.planning.replan.kernels import capacities
from solvers.planning.replan.replanner import price_services
from solvers.planning.replan.running_board import Row, RunningBoard, running_board
from solvers.planning.replan.seat import seat
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find


@pytest.fixture
def board() -> RunningBoard:
    """What runs for a busy hour."""
    problem = family("A", 16, 8, seed=3, load=0.7)
    plan = find(problem, SolveBudget(None, 1), alone=True).plan
    t = tables(replace(problem, state=RunningState(None, plan.instances)))
    shop, _ = price_services(t, 0)
    d = running_board(t, shop, ())
    assert not seat(d, plan.instances)
    d.forget()
    return d


def carried(d: RunningBoard, service: int) -> float:
    gpus, slots = d.seats(service)
    now, best, by = np.zeros(len(gpus)), np.zeros(len(gpus)), np.zeros(len(gpus), dtype=np.int64)
    capacities(d.w, d.b, d.x, gpus, slots, now, best, by)
    return float(now.sum())


def serves_all(d: RunningBoard) -> bool:
    return all(carried(d, service) >= rate * (1 - 1e-6) for service, rate in enumerate(d.w.rate))


def clear(d: RunningBoard, gpu: int) -> None:
    while d.b.count[gpu]:
        d.stop(gpu, int(d.b.count[gpu]) - 1)


def empty_one(d: RunningBoard) -> int:
    """Empties a GPU after the loads of what it ran have fallen to what other GPUs carry."""
    for gpu in np.flatnonzero(d.b.count).tolist():
        clear(d, gpu)
        left = [carried(d, service) for service in range(len(d.w.rate))]
        if all(left):
            d.w.rate[:] = np.minimum(d.w.rate, left)
            return gpu
        d.restore()
    raise AssertionError("every GPU runs something that no other runs")


def start_as(d: RunningBoard, gpu: int, row: Row) -> None:
    """Starts new copies of what is in the row of another GPU."""
    count, clock, offers, sms, batches, caps, memory, _ = row
    d.b.clock[gpu] = clock
    for k in range(count):
        d.start(gpu, int(offers[k]), int(sms[k]), int(batches[k]), float(memory[k]))
    d.b.cap[gpu, :count] = d.x.rate[gpu, :count] = caps


def twins(d: RunningBoard) -> tuple[int, int]:
    """Two GPUs of one pool that run other things."""
    used = np.flatnonzero(d.b.count).tolist()
    return next(
        (a, b) for a, b in combinations(used, 2)
        if d.b.pool[a] == d.b.pool[b] and set(d.row(a)[2].tolist()).isdisjoint(d.row(b)[2].tolist())
    )  # fmt: skip


@pytest.mark.slow
def test_what_two_gpus_exchange_stays_where_it_runs(board: RunningBoard) -> None:
    d, emptied = board, empty_one(board)
    a, b = twins(d)
    before = {gpu: (d.row(gpu), list(d.lines[gpu])) for gpu in (a, b)}
    for gpu in (a, b):
        clear(d, gpu)
    start_as(d, a, before[b][0])
    start_as(d, b, before[a][0])
    assert serves_all(d)
    assert SparedChanges(d, range(len(d.w.rate))).spare()
    assert serves_all(d)
    assert not d.b.count[emptied]
    for gpu, (_, lines) in before.items():
        assert {id(line) for line in d.lines[gpu]} == {id(line) for line in lines}


@pytest.mark.slow
def test_a_copy_that_is_resized_in_vain_keeps_its_share(board: RunningBoard) -> None:
    d, emptied = board, empty_one(board)
    gpu = next(gpu for gpu in np.flatnonzero(d.b.count).tolist() if d.b.sm[gpu, : d.b.count[gpu]].sum() < 100)
    row, line = d.row(gpu), d.lines[gpu][0]
    d.stop(gpu, 0)
    d.start(gpu, int(row[2][0]), int(row[3][0]) + 1, int(row[4][0]), float(row[6][0]))
    assert line not in d.lines[gpu]
    assert SparedChanges(d, range(len(d.w.rate))).spare()
    assert line in d.lines[gpu]
    assert serves_all(d)
    assert not d.b.count[emptied]


def test_nothing_is_taken_back_where_no_gpu_is_emptied(board: RunningBoard) -> None:
    d = board
    a, b = twins(d)
    rows = {gpu: d.row(gpu) for gpu in (a, b)}
    for gpu in (a, b):
        clear(d, gpu)
    start_as(d, a, rows[b])
    start_as(d, b, rows[a])
    assert not SparedChanges(d, range(len(d.w.rate))).spare()
    assert d.lines[a] == [None] * rows[b][0]
