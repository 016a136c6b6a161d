"""Compiled: simulates batch servers request by request, from one tick to the next, and a gateway that limits them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(
    "Tuple((int64, int64, float64, float64, int64, int64, int64, int64, int64))(float64[::1], int64, int64,"
    "float64[::1], float64, float64, float64, float64, float64, int64, float64[::1], int64[::1])",
    makes_arrays=True,
)
def serve(
    queue: Floats,
    inside: int,
    batch: int,
    execs_s: Floats,
    timeout_s: float,
    free: float,
    until: float,
    slo_s: float,
    patience_s: float,
    longest: int,
    edges_s: Floats,
    counts: Ints,
) -> tuple[int, int, float, float, int, int, int, int, int]:
    """Starts every batch that begins before `until`. `queue` has all arrival times before `until`, ascending.

    When free, the server starts as soon as `batch` requests wait or the oldest has waited `timeout_s`. `execs_s` are
    the times of its batches, in order. Arrivals that find `longest` waiting are turned away, except the first
    `inside`, which are already accepted; requests that waited longer than `patience_s` fail at no cost. Returns how
    many are left, which are then at the beginning of `queue`, how many of them wait inside, when the server is free,
    seconds busy, batches, answers within the SLO, failures, how many were turned away, and the size of the last batch;
    the answers' latencies are added to `counts` by their upper edges.
    """
    size = queue.shape[0]
    line = np.empty(size)  # waiting requests: line[head:tail]
    head = 0
    tail = 0
    came = 0
    busy = 0.0
    batches = 0
    within = 0
    failed = 0
    turned = 0
    size_of_last = 0
    while True:
        if head == tail:
            if came >= size:
                break
            line[tail] = queue[came]
            tail += 1
            came += 1
        start = line[head] + timeout_s
        last = head + batch - 1
        if last < tail:
            full = line[last]
        elif came + last - tail < size:
            full = queue[came + last - tail]
        else:
            full = np.inf
        start = max(min(start, full), free)
        if start >= until:
            break
        while came < size and queue[came] <= start:
            if came < inside or tail - head < longest:
                line[tail] = queue[came]
                tail += 1
            else:
                turned += 1
            came += 1
        if start - line[head] > patience_s:
            failed += 1
            head += 1
            continue
        exec_s = execs_s[batches % execs_s.shape[0]]
        for place in range(head, min(tail, head + batch)):
            latency = start + exec_s - line[place]
            if latency <= slo_s * (1.0 + 1e-9):
                within += 1
            counts[np.searchsorted(edges_s, latency)] += 1
        size_of_last = min(tail, head + batch) - head
        head = min(tail, head + batch)
        free = start + exec_s
        busy += exec_s
        batches += 1
    waiting = tail - head
    for place in range(waiting):
        queue[place] = line[head + place]
    for place in range(size - came):
        queue[waiting + place] = queue[came + place]
    inside_left = waiting + max(0, inside - came)
    return waiting + size - came, inside_left, free, busy, batches, within, failed, turned, size_of_last


@njit(
    "int64[::1](float64[::1], int64[::1], float64[::1], int64[::1], int64[::1], float64[::1], int64[::1],"
    "float64[::1], float64[::1], int64[::1], int64)",
    makes_arrays=True,
)
def assign_arrivals(
    arrivals: Floats,
    first: Ints,
    waiting: Floats,
    counts: Ints,
    in_batch: Ints,
    free: Floats,
    batch: Ints,
    exec_s: Floats,
    timeout_s: Floats,
    most: Ints,
    most_open: int,
) -> Ints:
    """Returns the copy of each arrival, or -1: the first choice or the next one with less than `most` open.

    `waiting` has the queues of all copies, each `counts` long. Batches start as in `serve`. A request is open from its
    arrival until its batch ends.
    """
    copies, size = counts.shape[0], arrivals.shape[0]
    line = np.empty((copies, waiting.shape[0] + size))  # those that wait: line[copy, head[copy]:tail[copy]]
    head = np.zeros(copies, dtype=np.int64)
    tail = counts.copy()
    running = in_batch.copy()
    free = free.copy()
    found = np.full(size, -1, dtype=np.int64)
    at = 0
    for copy in range(copies):
        for number in range(counts[copy]):
            line[copy, number] = waiting[at]
            at += 1
    for place in range(size):
        now = arrivals[place]
        all_open = 0
        for copy in range(copies):
            while head[copy] < tail[copy]:
                start = line[copy, head[copy]] + timeout_s[copy]
                last = head[copy] + batch[copy] - 1
                if last < tail[copy]:
                    start = min(start, line[copy, last])
                start = max(start, free[copy])
                if start > now:
                    break
                began = head[copy]
                while head[copy] < tail[copy] and head[copy] - began < batch[copy] and line[copy, head[copy]] <= start:
                    head[copy] += 1
                running[copy] = head[copy] - began
                free[copy] = start + exec_s[copy]
            if free[copy] <= now:
                running[copy] = 0
            all_open += tail[copy] - head[copy] + running[copy]
        if all_open >= most_open:
            continue
        for step in range(copies):
            copy = (first[place] + step) % copies
            if most[copy] == 0 or tail[copy] - head[copy] + running[copy] < most[copy]:
                line[copy, tail[copy]] = now
                tail[copy] += 1
                found[place] = copy
                break
    return found
