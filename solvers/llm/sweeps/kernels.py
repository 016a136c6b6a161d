"""The compiled loop that replays requests through a server that batches continuously, iteration by iteration.

Requests of one iteration gain one token each, so a request ends a known number of iterations after its first token: an
iteration costs as many steps as requests come, begin or end in it, however many are running.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from solvers.compiled import njit

Array: TypeAlias = Any  # numba knows the exact types from the signature

BASE, TOKEN, WEIGHTS, SEQUENCE, KV_TOKEN, PAIR, MIXED = range(7)


@njit(
    "int64(float64[::1], int64[::1], int64[::1], float64[::1], int64, int64, float64, int64, float64,"
    " float64[::1], float64[::1], float64[::1])",
    makes_arrays=True,
)
def replay(
    arrivals: Array, inputs: Array, outputs: Array, cost: Array, most_sequences: int, most_tokens: int,
    kv_tokens: float, concurrency: int, until_ms: float, first: Array, second: Array, last: Array,
) -> int:  # fmt: skip
    """Writes when each request had its first and its last token, in ms, and returns how many arrived before `until_ms`.

    `second` is the end of the iteration after the first token's: a server that hands tokens out while it computes the
    next ones is that late. With a concurrency, that many requests come at the start and another as each ends, and
    `arrivals` is written, too. Times that no request reached are -1. A prompt waits until it fits beside the tokens
    held; answers always find room.
    """
    count = len(inputs)
    first[:] = -1.0
    second[:] = -1.0
    fresh = 0  # requests before this one have their first token, and an iteration after it
    last[:] = -1.0
    rounds = 1
    for request in range(count):
        rounds = max(rounds, outputs[request] + 1)
    ending = np.full(rounds, -1, np.int64)  # the first request that ends in an iteration, and each next one
    after = np.full(count, -1, np.int64)
    computed = np.zeros(count, np.int64)
    came = 0
    if concurrency > 0:
        came = min(concurrency, count)
        arrivals[:came] = 0.0
    admitted = 0  # requests before this one have begun
    begun = 0  # requests before this one have their whole prompt
    ended = 0
    decoding = 0
    held = 0.0  # tokens of those that decode
    reserved = 0.0  # tokens of prompts that have begun and not ended
    iteration = 0
    clock = 0.0
    while ended < count and clock < until_ms:
        if concurrency == 0:
            while came < count and arrivals[came] <= clock:
                came += 1
        if decoding == 0 and begun == came:
            while fresh < begun:
                second[fresh] = clock
                fresh += 1
            if came == count:
                break
            clock = max(clock, arrivals[came])
            continue
        # prompts of this iteration: those already begun, then those that wait
        room = most_tokens - decoding
        prompt = 0
        pairs = 0.0
        request = begun
        while request < came and room > 0:
            if request >= admitted:
                running = decoding + request - begun
                full = held + reserved + inputs[request] > kv_tokens
                if running >= most_sequences or (full and running > 0):
                    break
                admitted = request + 1
                reserved += inputs[request]
            part = min(room, inputs[request] - computed[request])
            pairs += part * (computed[request] + 0.5 * part)
            computed[request] += part
            prompt += part
            room -= part
            request += 1
        computing = cost[TOKEN] * (prompt + decoding)
        clock += cost[BASE] + max(cost[WEIGHTS], computing) + cost[SEQUENCE] * decoding
        clock += cost[KV_TOKEN] * held + cost[PAIR] * pairs
        if prompt > 0:
            clock += cost[MIXED]
        held += decoding
        while fresh < begun:
            second[fresh] = clock
            fresh += 1
        # answers that end with this iteration
        slot = iteration % rounds
        request = ending[slot]
        ending[slot] = -1
        while request >= 0:
            last[request] = clock
            decoding -= 1
            held -= inputs[request] + outputs[request]
            ended += 1
            if concurrency > 0 and came < count:
                arrivals[came] = clock
                came += 1
            request = after[request]
        # prompts that are whole have their first token
        while begun < admitted and computed[begun] >= inputs[begun]:
            reserved -= inputs[begun]
            first[begun] = clock
            if outputs[begun] <= 1:
                last[begun] = clock
                ended += 1
                if concurrency > 0 and came < count:
                    arrivals[came] = clock
                    came += 1
            else:
                decoding += 1
                held += inputs[begun] + 1
                slot = (iteration + outputs[begun] - 1) % rounds
                after[begun] = ending[slot]
                ending[slot] = begun
            begun += 1
        iteration += 1
    return came
