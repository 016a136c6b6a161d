"""The compiled loop that simulates a language model's server; it takes the iterations between two changes at once."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SHIFT = 21
PLACES = 1 << SHIFT  # a heap's entry is the iteration in which a request ends, times this, plus the request


@njit("void(int64[::1], int64, int64)", inner=True)
def sift_down(heap: Integers, size: int, place: int) -> None:
    """Moves the entry at this place down until no entry below it is smaller."""
    entry = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = entry


@njit("void(int64[::1], int64)", inner=True)
def sift_up(heap: Integers, place: int) -> None:
    """Moves the entry at this place up until no entry above it is larger."""
    entry = heap[place]
    while place > 0:
        parent = (place - 1) >> 1
        if heap[parent] <= entry:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = entry


@njit("int64(int64[::1], int64, int64[::1])", inner=True)
def drop_last_admitted(heap: Integers, size: int, admitted: Integers) -> int:
    """Takes the entry of the request that was admitted last out of the heap and returns it."""
    found = 0
    for place in range(1, size):
        if admitted[heap[place] & (PLACES - 1)] > admitted[heap[found] & (PLACES - 1)]:
            found = place
    entry = heap[found]
    if found < size - 1:
        heap[found] = heap[size - 1]
        sift_down(heap, size - 1, found)
        sift_up(heap, found)
    return int(entry)


@njit("int64(float64, float64, float64, int64)", inner=True)
def iterations_until(wait: float, first: float, growth: float, most: int) -> int:
    """Returns after how many iterations `wait` is over, at most so many; each takes `growth` more than the last."""
    half = 0.5 * growth
    straight = first - half
    below = straight + math.sqrt(straight * straight + 4.0 * half * wait)
    if below <= 0.0 or 2.0 * wait >= below * most:
        return most
    count = max(1, int(2.0 * wait / below))
    while count < most and count * (straight + half * count) < wait:
        count += 1
    while count > 1 and (count - 1) * (straight + half * (count - 1)) >= wait:
        count -= 1
    return count


@njit(
    "void(float64[::1], float64, int64[::1], int64[::1], int64[::1], float64[::1], int64[::1], float64[::1],"
    " float64[::1], float64[::1], int64[::1], float64[::1])",
    makes_arrays=True,
)
def serve(
    arrivals: Floats,
    unit_ms: float,
    inputs: Integers,
    outputs: Integers,
    cached: Integers,
    cost: Floats,
    limits: Integers,
    stops: Floats,
    first_ms: Floats,
    last_ms: Floats,
    preempted: Integers,
    totals: Floats,
) -> None:
    """Serves the requests; an arrival is a multiple of `unit_ms`, and each request fits into memory alone.

    `cost` has the coefficients in the order of IterationCost, `limits` those of BatchingLimits. It writes the times of
    first and last tokens, how often each request was preempted, and the totals: iterations, busy time, end, peak of
    tokens held, requests times milliseconds in which they run, 1 if it stopped early, and the tokens held and their
    squares times milliseconds. `stops` has the promised TTFT and TPOT, how many of the first requests do not count
    because the server starts empty, and how many others may exceed the first, exceed the second and be preempted: one
    more stops the simulation.
    """
    base, token, weights, sequence, kv_token, pair = cost[0], cost[1], cost[2], cost[3], cost[4], cost[5]
    mixed = cost[6]
    batch, budget, most_held = limits[0], limits[1], limits[2]
    promised_ttft, promised_tpot, skipped = stops[0], stops[1], stops[2]
    most_late, most_slow, most_lost = stops[3], stops[4], stops[5]
    count = arrivals.shape[0]
    heap = np.empty(batch + 1, dtype=np.int64)  # of the requests that decode
    given = np.zeros(count, dtype=np.int64)  # before the preemption, and at the first token
    admitted = np.zeros(count, dtype=np.int64)  # its number in the order of admissions
    returned = np.empty(batch + 1, dtype=np.int64)  # preempted, the next to be admitted last
    ending = np.empty(batch + 1, dtype=np.int64)  # whose prompts this iteration completes
    size = back = admissions = iteration = 0
    held = 0  # by the requests that decode
    following = 0  # the next request to arrive
    part, part_done = -1, 0  # the request whose prompt is computed in part, and how many tokens of it
    now = busy = area = 0.0
    peak = 0
    late = slow = lost = 0.0
    while True:
        if size == 0 and part < 0 and back == 0:
            if following == count:
                break
            now = max(now, arrivals[following] * unit_ms)
        reserved = inputs[part] + given[part] + 1 if part >= 0 else 0
        while held + size + reserved > most_held:
            if part >= 0:
                request, part, reserved = part, -1, 0
            else:
                entry = drop_last_admitted(heap, size, admitted)
                size -= 1
                request = entry & (PLACES - 1)
                given[request] = outputs[request] - ((entry >> SHIFT) - iteration)
                held -= inputs[request] + given[request]
            if request >= skipped and preempted[request] == 0:
                lost += 1.0
            preempted[request] += 1
            returned[back] = request
            back += 1
        space = most_held - held - size - reserved
        left = budget - size
        tokens, pairs, ends, running = 0, 0.0, 0, size
        if part >= 0:
            running += 1
        while left > 0:
            if part < 0:  # admit the next
                if running >= batch:
                    break
                if back > 0:
                    request = returned[back - 1]
                elif following < count and arrivals[following] * unit_ms <= now:
                    request = following
                else:
                    break
                needs = inputs[request] + given[request] + 1
                if needs > space:
                    break
                space -= needs
                if back > 0:
                    back -= 1
                else:
                    following += 1
                admissions += 1
                admitted[request] = admissions
                running += 1
                part, part_done = request, cached[request]
            taken = min(left, inputs[part] + given[part] - part_done)
            pairs += taken * (part_done + 0.5 * (taken - 1))
            tokens += taken
            left -= taken
            part_done += taken
            if part_done == inputs[part] + given[part]:
                ending[ends] = part
                ends += 1
                part = -1
        peak = max(peak, most_held - space)
        ms = base + max(weights, token * (tokens + size)) + sequence * size + kv_token * held + pair * pairs
        if tokens > 0:
            ms += mixed
        if tokens == 0:  # nothing changes until a request ends, arrives and can be admitted, or memory is full
            steps = (heap[0] >> SHIFT) - iteration
            steps = min(steps, (most_held - held) // size)
            free = running < batch and budget > size and back == 0 and following < count
            if free and arrivals[following] * unit_ms > now:
                steps = iterations_until(arrivals[following] * unit_ms - now, ms, kv_token * size, steps)
            ms = steps * (ms + 0.5 * kv_token * size * (steps - 1))
            peak = max(peak, held + size * steps)
        else:
            steps = 1
        now += ms
        busy += ms
        area += ms * running
        iteration += steps
        held += size * steps
        while size > 0 and heap[0] >> SHIFT == iteration:
            request = heap[0] & (PLACES - 1)
            size -= 1
            heap[0] = heap[size]
            sift_down(heap, size, 0)
            held -= inputs[request] + outputs[request]
            last_ms[request] = now
            if request >= skipped and now - first_ms[request] > promised_tpot * (outputs[request] - 1):
                slow += 1.0
        for place in range(ends):
            request = ending[place]
            if given[request] == 0:
                first_ms[request] = now
                if request >= skipped and now - arrivals[request] * unit_ms > promised_ttft:
                    late += 1.0
            given[request] += 1
            if given[request] == outputs[request]:
                last_ms[request] = now
                if request >= skipped and now - first_ms[request] > promised_tpot * (outputs[request] - 1):
                    slow += 1.0
            else:
                heap[size] = (iteration + outputs[request] - given[request]) * PLACES + request
                held += inputs[request] + given[request]
                sift_up(heap, size)
                size += 1
        if late > most_late or slow > most_slow or lost > most_lost:
            totals[5] = 1.0
            break
    totals[0], totals[1], totals[2], totals[3], totals[4] = iteration, busy, now, peak, area
