"""Compiled: a language model's server, iteration by iteration, that goes on from one moment to the next.

It is the scheduler of docs/token-model.md. `solvers/llm/kernels.py` serves a whole stream at once; here requests
come one by one, because a gateway chooses a server by what each has open just then.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit
from solvers.llm.kernels import PLACES, SHIFT, drop_last_admitted, iterations_until, sift_down, sift_up

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The numbers of a server's state: counts of requests that decode, that are preempted, and that wait; of admissions and
# iterations so far; tokens held; the request whose prompt is computed in part, or -1, and how far it is; the first of
# those that wait; the requests that the last iteration ended; the slots that are free; and the input tokens of the
# requests that are open, and of those that the last iteration ended.
DECODING, RETURNED, WAITING, ADMISSIONS, ITERATION, HELD, PART, PART_DONE, HEAD, LAST, FREE, OPEN_INPUT, LAST_INPUT = (
    range(13)
)
STATE_NUMBERS = 13
# The numbers of a request: its lengths, the input tokens that are there already, the tokens given before a preemption
# and at the first token, and its place in the order of admissions.
INPUT, OUTPUT, CACHED, GIVEN, ADMITTED = range(5)
REQUEST_NUMBERS = 5
# The totals of a server: requests that kept both promises, that failed, whose first token was late; tokens; requests of
# two tokens or more, those of them with a slow pace; and preemptions.
WITHIN, ERRORS, LATE, TOKENS_IN, TOKENS_OUT, PACED, PACE_LATE, PREEMPTIONS = range(8)
TOTALS = 8


@njit(
    "void(int64, float64, float64[:, ::1], int64[:, ::1], float64[::1], float64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1])",
    inner=True,
)
def note_end(
    request: int,
    now: float,
    times: Floats,
    requests: Ints,
    promised_ms: Floats,
    edges_ms: Floats,
    counts: Ints,
    sums: Ints,
    free: Ints,
    state: Ints,
) -> None:
    """Counts a request whose last token is given, and frees its slot."""
    ttft, outputs = times[1, request] - times[0, request], requests[OUTPUT, request]
    is_late = ttft > promised_ms[0] * (1.0 + 1e-9)
    is_slow = now - times[1, request] > promised_ms[1] * (outputs - 1) * (1.0 + 1e-9)
    counts[np.searchsorted(edges_ms, ttft)] += 1
    sums[TOKENS_IN] += requests[INPUT, request]
    sums[TOKENS_OUT] += outputs
    if outputs > 1:
        sums[PACED] += 1
    if is_late:
        sums[LATE] += 1
    if is_slow:
        sums[PACE_LATE] += 1
    if not is_late and not is_slow:
        sums[WITHIN] += 1
    free[state[FREE]] = request
    state[FREE] += 1
    state[LAST] += 1
    state[OPEN_INPUT] -= requests[INPUT, request]
    state[LAST_INPUT] += requests[INPUT, request]


@njit(
    "void(float64, float64[::1], int64[::1], float64[::1], int64[::1], float64[::1], int64[:, ::1], float64[:, ::1],"
    " int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], int64[::1], int64[::1])"
)
def advance(
    until: float,
    cost: Floats,
    limits: Ints,
    promised_ms: Floats,
    state: Ints,
    clock: Floats,
    requests: Ints,
    times: Floats,
    heap: Ints,
    ending: Ints,
    returned: Ints,
    ring: Ints,
    free: Ints,
    edges_ms: Floats,
    counts: Ints,
    sums: Ints,
) -> None:
    """Runs every iteration that begins before `until`; all times are milliseconds.

    `cost` has the coefficients in the order of IterationCost, `limits` those of BatchingLimits, `promised_ms` TTFT,
    TPOT, and how long a caller waits to be admitted. `clock` has the end of the last iteration and the busy time.
    A request is a slot, a column of `requests` and of `times`, which has its arrival and its first token. `ring` has
    the slots that wait, in order, `returned` the preempted ones, `ending` room for those that end a prompt, `free` the
    slots of no request. When a request ends, its time to the first token is added to `counts` by its upper edge.
    """
    base, token, weights, sequence, kv_token, pair = cost[0], cost[1], cost[2], cost[3], cost[4], cost[5]
    batch, budget, most_held = limits[0], limits[1], limits[2]
    admitted = requests[ADMITTED]
    now, busy = clock[0], clock[1]
    size, back, held, part, part_done = state[DECODING], state[RETURNED], state[HELD], state[PART], state[PART_DONE]
    iteration = state[ITERATION]
    while True:
        if size == 0 and part < 0 and back == 0:
            if state[WAITING] == 0:
                break
            now = max(now, times[0, ring[state[HEAD]]])
        if now >= until:
            break
        state[LAST] = state[LAST_INPUT] = 0
        reserved = requests[INPUT, part] + requests[GIVEN, part] + 1 if part >= 0 else 0
        while held + size + reserved > most_held:
            if part >= 0:
                request, part, reserved = part, -1, 0
            else:
                entry = drop_last_admitted(heap, size, admitted)
                size -= 1
                request = entry & (PLACES - 1)
                requests[GIVEN, request] = requests[OUTPUT, request] - ((entry >> SHIFT) - iteration)
                held -= requests[INPUT, request] + requests[GIVEN, request]
            sums[PREEMPTIONS] += 1
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
                elif state[WAITING] > 0:
                    request = ring[state[HEAD]]
                    if now - times[0, request] > promised_ms[2]:  # its caller has left
                        sums[ERRORS] += 1
                        free[state[FREE]] = request
                        state[FREE] += 1
                        state[OPEN_INPUT] -= requests[INPUT, request]
                        state[HEAD] = (state[HEAD] + 1) % ring.shape[0]
                        state[WAITING] -= 1
                        continue
                else:
                    break
                needs = requests[INPUT, request] + requests[GIVEN, request] + 1
                if needs > most_held:  # its server has less memory now than when it came
                    sums[ERRORS] += 1
                    free[state[FREE]] = request
                    state[FREE] += 1
                    state[OPEN_INPUT] -= requests[INPUT, request]
                    if back > 0:
                        back -= 1
                    else:
                        state[HEAD] = (state[HEAD] + 1) % ring.shape[0]
                        state[WAITING] -= 1
                    continue
                if needs > space:
                    break
                space -= needs
                if back > 0:
                    back -= 1
                else:
                    state[HEAD] = (state[HEAD] + 1) % ring.shape[0]
                    state[WAITING] -= 1
                state[ADMISSIONS] += 1
                admitted[request] = state[ADMISSIONS]
                running += 1
                part, part_done = request, requests[CACHED, request]
            taken = min(left, requests[INPUT, part] + requests[GIVEN, part] - part_done)
            pairs += taken * (part_done + 0.5 * (taken - 1))
            tokens += taken
            left -= taken
            part_done += taken
            if part_done == requests[INPUT, part] + requests[GIVEN, part]:
                ending[ends] = part
                ends += 1
                part = -1
        if running == 0:  # all who waited had left
            continue
        ms = base + max(weights, token * (tokens + size)) + sequence * size + kv_token * held + pair * pairs
        steps = 1
        if tokens > 0:
            ms += cost[6]
        else:  # nothing changes until a request ends, memory is full, or somebody may come
            steps = min((heap[0] >> SHIFT) - iteration, (most_held - held) // size)
            steps = iterations_until(until - now, ms, kv_token * size, steps)
            ms = steps * (ms + 0.5 * kv_token * size * (steps - 1))
        now += ms
        busy += ms
        iteration += steps
        held += size * steps
        while size > 0 and heap[0] >> SHIFT == iteration:
            request = heap[0] & (PLACES - 1)
            size -= 1
            heap[0] = heap[size]
            sift_down(heap, size, 0)
            held -= requests[INPUT, request] + requests[OUTPUT, request]
            note_end(request, now, times, requests, promised_ms, edges_ms, counts, sums, free, state)
        for place in range(ends):
            request = ending[place]
            if requests[GIVEN, request] == 0:
                times[1, request] = now
            requests[GIVEN, request] += 1
            if requests[GIVEN, request] == requests[OUTPUT, request]:
                note_end(request, now, times, requests, promised_ms, edges_ms, counts, sums, free, state)
            else:
                heap[size] = (iteration + requests[OUTPUT, request] - requests[GIVEN, request]) * PLACES + request
                held += requests[INPUT, request] + requests[GIVEN, request]
                sift_up(heap, size)
                size += 1
    clock[0], clock[1] = now, busy
    state[DECODING], state[RETURNED], state[HELD], state[PART], state[PART_DONE] = size, back, held, part, part_done
    state[ITERATION] = iteration
