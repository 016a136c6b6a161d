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
SEQUENCES, TOKENS, KV_TOKENS, BLOCK_TOKENS, PREFIX_CACHING, DATA_RANKS, EXPERTS, AHEAD = range(8)
WAITING_WEIGHT = 4  # of a waiting request beside a running one, where ranks are compared
NOBODY = -1  # needs the contents of these blocks
LINE_START, LINE_END = range(2)


@njit("void(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64, int64, int64)", inner=True)
def free_blocks(line: Array, owners: Array, sizes: Array, places: Array, rank: int, owner: int, blocks: int) -> None:
    """Appends blocks to the line of those that are free: the ones freed first are overwritten first."""
    if line[rank, LINE_END] == owners.shape[1]:  # what is overwritten leaves its place, and neighbours become one
        kept = 0
        for place in range(1, owners.shape[1]):
            if owners[rank, place] != owners[rank, kept] and sizes[rank, place] > 0:
                kept += sizes[rank, kept] > 0
                owners[rank, kept], sizes[rank, kept] = owners[rank, place], sizes[rank, place]
                if owners[rank, kept] != NOBODY:
                    places[owners[rank, kept]] = kept
            else:
                sizes[rank, kept] += sizes[rank, place]
        line[rank, LINE_START], line[rank, LINE_END] = 0, kept + 1
    place = line[rank, LINE_END]
    if owner == NOBODY and owners[rank, place - 1] == NOBODY:
        sizes[rank, place - 1] += blocks
        return
    owners[rank, place], sizes[rank, place] = owner, blocks
    if owner != NOBODY:
        places[owner] = place
    line[rank, LINE_END] = place + 1


@njit("void(int64[:, ::1], int64[:, ::1], int64, int64)", inner=True)
def overwrite_blocks(line: Array, sizes: Array, rank: int, blocks: int) -> None:
    """Takes the blocks that were freed first."""
    while blocks > 0:
        place = line[rank, LINE_START]
        taken = min(blocks, sizes[rank, place])
        sizes[rank, place] -= taken
        blocks -= taken
        line[rank, LINE_START] += blocks > 0


@njit(
    "int64(float64[::1], int64[::1], int64[::1], int64[::1], float64[::1], int64[::1], int64, float64,"
    " float64[::1], float64[::1], float64[::1], int64[::1], int64[::1], float64[::1])",
    makes_arrays=True,
)
def replay(
    arrivals: Array, inputs: Array, outputs: Array, cached: Array, cost: Array, engine: Array, concurrency: int,
    until_ms: float, first: Array, second: Array, last: Array, preempted: Array, placed: Array, totals: Array,
) -> int:  # fmt: skip
    """Writes when each request had its first and its last token, in ms, and returns how many arrived before `until_ms`.

    `second` is the end of the iteration after the first token's: a server that hands tokens out while it computes the
    next ones is that late. `engine` has what the constants above name, limits for each data rank. With a concurrency,
    that many requests come at the start and another as each ends, and `arrivals` is written, too. Times that no request
    reached are -1, also of those that an empty memory cannot hold. Memory is counted in blocks. A decoding request
    needs another one when its tokens fill the last: `counts` has how many do so, by iteration modulo a block's tokens.
    `placed` is each request's data rank, written where it is below 0. `cached` tokens of a prompt are there already,
    but held. `totals` has iterations and their time, the end, the most tokens that a rank held, and requests times the
    milliseconds in which they run; blocks count whole.
    """
    count = len(inputs)
    first[:] = -1.0
    second[:] = -1.0
    last[:] = -1.0
    most_sequences, most_tokens, block = engine[SEQUENCES], engine[TOKENS], engine[BLOCK_TOKENS]
    ranks, together, ahead = engine[DATA_RANKS], engine[EXPERTS] > 0, engine[AHEAD] > 0
    blocks = engine[KV_TOKENS] // block
    rounds = 1
    for request in range(count):
        rounds = max(rounds, outputs[request] + 1)
    ending = np.full((ranks, rounds), -1, np.int64)  # the first request that ends in an iteration, and each next one
    after = np.full(count, -1, np.int64)
    ends = np.zeros(count, np.int64)  # in which iteration of its rank
    earlier = np.full(count, -1, np.int64)  # admitted just before it, of those that run on its rank
    later = np.full(count, -1, np.int64)
    newest = np.full(ranks, -1, np.int64)  # the request that was admitted last
    computed = np.zeros(count, np.int64)
    given = np.zeros(count, np.int64)  # when its prompt began or ended
    queue = np.zeros((ranks, count + 1), np.int64)
    head, tail = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    owners = np.full((ranks, 2 * count + 3), NOBODY, np.int64)  # of free blocks: preempted requests, and nobody
    sizes = np.zeros((ranks, 2 * count + 3), np.int64)
    places = np.zeros(count, np.int64)
    line = np.zeros((ranks, 2), np.int64)
    line[:, LINE_END] = 1
    sizes[:, 0] = blocks
    free = np.full(ranks, blocks, np.int64)
    counts = np.zeros((ranks, block), np.int64)
    iteration = np.zeros(ranks, np.int64)
    decoding = np.zeros(ranks, np.int64)
    held = np.zeros(ranks)  # tokens of those that decode
    part = np.full(ranks, -1, np.int64)  # the request whose prompt is computed in part
    whole = np.zeros((ranks, most_sequences + 1), np.int64)  # requests whose prompts the iteration completes
    begun = np.zeros(ranks, np.int64)  # how many
    before = np.zeros((ranks, most_sequences + 1), np.int64)  # those of the iteration before
    fresh = np.zeros(ranks, np.int64)
    leaving = np.zeros(ranks, np.int64)  # ended requests whose memory and places the next iteration does not have yet
    left = np.zeros(ranks, np.int64)  # their blocks
    clock, visible = np.zeros(ranks), np.zeros(ranks)  # arrivals after `visible` miss the next iteration
    came = ended = 0
    known = count
    if concurrency > 0:
        known = min(concurrency, count)
        arrivals[:known] = 0.0
    while ended < count:
        start = -1
        for rank in range(ranks):
            busy = decoding[rank] > 0 or part[rank] >= 0 or tail[rank] > head[rank]
            if busy and (start < 0 or clock[rank] < clock[start]):
                start = rank
        if start < 0 and came == known:
            break
        now = arrivals[came] if start < 0 else clock[start]
        if now >= until_ms:
            break
        if came < known and arrivals[came] <= now:
            chosen, least = placed[came], -1
            for rank in range(ranks if chosen < 0 else 0):
                running = decoding[rank] + leaving[rank] + (part[rank] >= 0)
                load = WAITING_WEIGHT * (tail[rank] - head[rank]) + running
                if least < 0 or load < least:
                    chosen, least = rank, load
            if inputs[came] + outputs[came] - 1 > blocks * block:
                ended += 1
                if known < count:
                    arrivals[known] = arrivals[came]
                    known += 1
            else:
                for rank in range(ranks):
                    sleeps = decoding[rank] == 0 and part[rank] < 0 and tail[rank] == head[rank]
                    if start < 0 if together else rank == chosen and sleeps:
                        clock[rank] = max(clock[rank], arrivals[came])
                        fresh[rank] = 0
                placed[came] = chosen
                queue[chosen, tail[chosen]] = came
                tail[chosen] += 1
            came += 1
            continue
        latest = now
        served = 0
        stop = start + 1
        if together:
            start, stop = 0, ranks
        if decoding[start:stop].sum() == 0 and part[start:stop].max() < 0:  # nothing was composed ahead
            for rank in range(start, stop):
                visible[rank] = now
                free_blocks(line, owners, sizes, places, rank, NOBODY, left[rank])
                free[rank] += left[rank]
                leaving[rank] = left[rank] = 0
        for rank in range(start, stop):
            # memory of those that run
            phase = -iteration[rank] % block
            room = most_tokens - decoding[rank]
            chunk = grown = 0
            if part[rank] >= 0 and room > 0:
                request = part[rank]
                chunk = min(room, inputs[request] + given[request] - computed[request])
                grown = (computed[request] + chunk - 1) // block - (computed[request] - 1) // block
            full = False
            while counts[rank, phase] + grown > free[rank]:
                full = True
                request = newest[rank]
                newest[rank] = earlier[request]
                if newest[rank] >= 0:
                    later[newest[rank]] = -1
                if part[rank] == request:
                    part[rank] = -1
                    chunk = grown = 0
                else:
                    given[request] = outputs[request] - (ends[request] - iteration[rank])
                    computed[request] = inputs[request] + given[request] - 1
                    counts[rank, (computed[request] - iteration[rank]) % block] -= 1
                    decoding[rank] -= 1
                    held[rank] -= inputs[request] + given[request]
                    slot = ends[request] % rounds
                    if ending[rank, slot] == request:
                        ending[rank, slot] = after[request]
                    else:
                        other = ending[rank, slot]
                        while after[other] != request:
                            other = after[other]
                        after[other] = after[request]
                freed = (computed[request] + block - 1) // block
                free_blocks(line, owners, sizes, places, rank, request, freed)
                free[rank] += freed
                preempted[request] += 1
                head[rank] -= 1
                queue[rank, head[rank]] = request
            overwrite_blocks(line, sizes, rank, counts[rank, phase] + grown)
            free[rank] -= counts[rank, phase] + grown
            # prompts
            room = most_tokens - decoding[rank]
            running = decoding[rank] + leaving[rank] + (part[rank] >= 0)
            prompt = 0
            pairs = 0.0
            begun[rank] = 0
            while room > 0:
                if part[rank] >= 0:
                    request = part[rank]
                elif full or tail[rank] == head[rank] or running >= most_sequences:
                    break
                else:
                    request = queue[rank, head[rank]]
                    needed = inputs[request] + given[request]
                    if arrivals[request] > visible[rank] or (needed - 1) // block + 1 > free[rank]:
                        break
                    reused = 0
                    if preempted[request] > 0 and owners[rank, places[request]] == request:
                        if engine[PREFIX_CACHING] > 0:
                            reused = min(sizes[rank, places[request]], computed[request] // block)
                        owners[rank, places[request]] = NOBODY
                        sizes[rank, places[request]] -= reused
                    computed[request] = max(reused * block, cached[request])
                    chunk = min(room, needed - computed[request])
                    grown = (computed[request] + chunk - 1) // block + 1 - reused
                    overwrite_blocks(line, sizes, rank, grown)
                    free[rank] -= grown + reused
                    head[rank] += 1
                    running += 1
                    part[rank] = request
                    earlier[request], later[request] = newest[rank], -1
                    if newest[rank] >= 0:
                        later[newest[rank]] = request
                    newest[rank] = request
                pairs += chunk * (computed[request] + 0.5 * chunk)
                computed[request] += chunk
                prompt += chunk
                room -= chunk
                if computed[request] == inputs[request] + given[request]:
                    whole[rank, begun[rank]] = request
                    begun[rank] += 1
                    part[rank] = -1
            computing = max(cost[WEIGHTS], cost[TOKEN] * (prompt + decoding[rank]))
            end = now + (cost[BASE] + computing + cost[SEQUENCE] * decoding[rank])
            end += cost[KV_TOKEN] * held[rank] + cost[PAIR] * pairs
            if prompt > 0:
                end += cost[MIXED]
            latest = max(latest, end)
            served += running
            totals[3] = max(totals[3], (blocks - free[rank]) * block)
        totals[0] += 1
        totals[1] += latest - now
        totals[2] = max(totals[2], latest)
        totals[4] += served * (latest - now)
        for rank in range(start, stop):
            visible[rank] = clock[rank] if ahead else latest
            clock[rank] = latest
            free_blocks(line, owners, sizes, places, rank, NOBODY, left[rank])
            free[rank] += left[rank]
            leaving[rank] = left[rank] = 0
            held[rank] += decoding[rank]
            iteration[rank] += 1
            slot = iteration[rank] % rounds
            chain = ending[rank, slot]
            ending[rank, slot] = -1
            for place in range(fresh[rank]):
                second[before[rank, place]] = latest
            fresh[rank] = 0
            for place in range(begun[rank]):
                request = whole[rank, place]
                if given[request] == 0:
                    first[request] = second[request] = latest
                    before[rank, fresh[rank]] = request
                    fresh[rank] += 1
                given[request] += 1
                if given[request] < outputs[request]:
                    ends[request] = iteration[rank] + outputs[request] - given[request]
                    slot = ends[request] % rounds
                    after[request] = ending[rank, slot]
                    ending[rank, slot] = request
                    decoding[rank] += 1
                    held[rank] += inputs[request] + given[request]
                    counts[rank, (inputs[request] + given[request] - 1 - iteration[rank]) % block] += 1
                else:
                    decoding[rank] += 1
                    held[rank] += inputs[request] + outputs[request]
                    counts[rank, (inputs[request] + outputs[request] - 1 - iteration[rank]) % block] += 1
                    after[request] = chain
                    chain = request
            while chain >= 0:
                request = chain
                chain = after[request]
                last[request] = latest
                decoding[rank] -= 1
                held[rank] -= inputs[request] + outputs[request]
                counts[rank, (inputs[request] + outputs[request] - 1 - iteration[rank]) % block] -= 1
                leaving[rank] += 1
                left[rank] += (inputs[request] + outputs[request] - 2) // block + 1
                if earlier[request] >= 0:
                    later[earlier[request]] = later[request]
                if later[request] >= 0:
                    earlier[later[request]] = earlier[request]
                else:
                    newest[rank] = earlier[request]
                ended += 1
                if known < count:
                    arrivals[known] = latest
                    known += 1
            if not ahead:
                free_blocks(line, owners, sizes, places, rank, NOBODY, left[rank])
                free[rank] += left[rank]
                leaving[rank] = left[rank] = 0
    return came
