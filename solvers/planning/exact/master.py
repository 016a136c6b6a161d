"""Compiled: finds how much of the need GPUs could carry if each might mix its patterns, with prices that prove it.

maximise    t
so that     sum of mix[g, p] x rates[p, s] >= t     for every service s (rates are in parts of its need)
            sum of mix[g, p] over p <= number[g]    for every group g of GPUs alike

A revised simplex over the few columns found so far; at its prices it looks for the best pattern of each group among
all. Even if the simplex is wrong, the prices v give a true bound: t x sum(v) <= sum over g of number x max(p.v).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solvers.compiled import njit
from solvers.planning.exact.kernels import F1, F2, F8, I1, I8, TUPLE
from solvers.planning.fleet.grids import Floats, Ints

BLOCK = 64  # patterns that share a row of maxima
ROUNDS = 60
PIVOTS = 400
SATURATED_SHARE = 3e-5  # of a need, beyond the need: what carries no more of it does all it can for it
NUDGE = 1e-8  # of the right-hand sides: every pivot makes progress


@njit((F2, F2, I8, I8, F1), inner=True)
def best_of(rates: Floats, tops: Floats, first: int, last: int, v: Floats) -> tuple[int, float]:
    """Returns the pattern of first..last that is worth most at prices v, and its worth; `first` begins a block."""
    most, by = -1.0, -1
    services = v.shape[0]
    at = first
    while at < last:
        end = min(last, at + BLOCK)
        top = 0.0
        for s in range(services):
            top += tops[at // BLOCK, s] * v[s]
        if top * (1.0 + 1e-12) > most:
            for p in range(at, end):
                worth = 0.0
                for s in range(services):
                    worth += rates[p, s] * v[s]
                if worth > most:
                    most, by = worth, p
        at = end
    return by, most


@njit(F1(F2, F2, I1, I1, F1), makes_arrays=True)
def worths(rates: Floats, tops: Floats, start: Ints, end: Ints, v: Floats) -> Floats:
    """Returns the worth of the best pattern of each group."""
    found = np.zeros(start.shape[0])
    for g in range(start.shape[0]):
        if end[g] > start[g]:
            found[g] = best_of(rates, tops, start[g], end[g], v)[1]
    return found


# highspy gives the same answers, but takes 0.75 ms a call instead of 0.02 ms: a proof makes up to 1,000 of them, and
# six proofs together take 24 % longer (8.0 s of processor time instead of 6.5 s).
@njit(TUPLE((F1, I1, F1, F8, F8))(F2, F2, I1, I1, F1, F8, F1), makes_arrays=True)
def mix(
    rates: Floats, tops: Floats, start: Ints, end: Ints, number: Floats, enough: float, begin: Floats
) -> tuple[Floats, Ints, Floats, float, float]:
    """Returns prices (adding up to 1), patterns mixed, how much of each, t of the mix, and the prices' bound on t.

    Stops as soon as the bound is below `enough`. `begin` are prices to start from.
    """
    services, groups = rates.shape[1], start.shape[0]
    rows = services + groups
    limit = ROUNDS * groups
    column = np.zeros((limit, rows))
    pattern = np.zeros(limit, dtype=np.int64)
    known = 0
    # Basis: surpluses and slacks, -1 - row; t is `limit`.
    basis = np.zeros(rows, dtype=np.int64)
    inverse = np.zeros((rows, rows))
    x = np.zeros(rows)
    right = np.zeros(rows)
    for i in range(rows):
        basis[i] = -1 - i
        inverse[i, i] = 1.0
        right[i] = NUDGE * (1.0 + 0.37 * i) if i < services else number[i - services]
        x[i] = right[i]
    y = np.zeros(rows)
    d = np.zeros(rows)
    v = begin.copy()
    best_v = begin.copy()
    bound = np.inf
    for _ in range(ROUNDS):
        total, grew = 0.0, False
        for g in range(groups):
            if end[g] <= start[g] or number[g] <= 0.0:
                continue
            p, worth = best_of(rates, tops, start[g], end[g], v)
            total += number[g] * worth
            fresh = True
            for k in range(known):
                if pattern[k] == p:
                    fresh = False
                    break
            if fresh and known < limit:
                pattern[known] = p
                for s in range(services):
                    column[known, s] = -rates[p, s]
                column[known, services + g] = 1.0
                known += 1
                grew = True
        weight = 0.0
        for s in range(services):
            weight += v[s]
        if weight > 0.0 and total / weight < bound:
            bound = total / weight
            for s in range(services):
                best_v[s] = v[s] / weight
        if bound < enough:
            break
        if not grew:
            break
        for _ in range(PIVOTS):
            # prices of the basis: only t has a value
            for i in range(rows):
                y[i] = 0.0
            for r in range(rows):
                if basis[r] == limit:
                    for i in range(rows):
                        y[i] = inverse[r, i]
            gain, enters = 1e-10, -1000000
            outside = 1.0
            for s in range(services):
                outside -= y[s]
            if outside > gain:
                gain, enters = outside, limit
            for i in range(rows):
                if -y[i] > gain:
                    gain, enters = -y[i], -1 - i
            for k in range(known):
                worth = 0.0
                for i in range(rows):
                    worth -= column[k, i] * y[i]
                if worth > gain:
                    gain, enters = worth, k
            if enters == -1000000:
                break
            for r in range(rows):
                d[r] = 0.0
                if enters == limit:
                    for s in range(services):
                        d[r] += inverse[r, s]
                elif enters < 0:
                    d[r] = inverse[r, -1 - enters]
                else:
                    for i in range(rows):
                        d[r] += inverse[r, i] * column[enters, i]
            leaves, step = -1, np.inf
            for r in range(rows):
                if d[r] > 1e-11:
                    ratio = max(x[r], 0.0) / d[r]
                    if ratio < step - 1e-15 or (ratio <= step + 1e-15 and leaves >= 0 and d[r] > d[leaves]):
                        leaves, step = r, ratio
            if leaves < 0:
                break
            pivot = d[leaves]
            for i in range(rows):
                inverse[leaves, i] /= pivot
            for r in range(rows):
                if r != leaves and d[r] != 0.0:
                    for i in range(rows):
                        inverse[r, i] -= d[r] * inverse[leaves, i]
                    x[r] -= d[r] * step
            x[leaves] = step
            basis[leaves] = enters
        weight = 0.0
        for s in range(services):
            v[s] = 0.0
        for r in range(rows):
            if basis[r] == limit:
                for s in range(services):
                    v[s] = max(inverse[r, s], 0.0)
        for s in range(services):
            weight += v[s]
        if weight <= 0.0:
            break
        for s in range(services):
            v[s] /= weight
    count = 0
    used = np.zeros(rows, dtype=np.int64)
    much = np.zeros(rows)
    t = 0.0
    for r in range(rows):
        if basis[r] == limit:
            t = x[r]
        elif basis[r] >= 0 and x[r] > 1e-9:
            used[count], much[count] = pattern[basis[r]], x[r]
            count += 1
    return best_v, used[:count].copy(), much[:count].copy(), t, bound


@njit(F2(F2), makes_arrays=True)
def block_tops(rates: Floats) -> Floats:
    """Returns the maxima of every block of patterns."""
    count = (rates.shape[0] + BLOCK - 1) // BLOCK
    tops = np.zeros((count, rates.shape[1]))
    for p in range(rates.shape[0]):
        for s in range(rates.shape[1]):
            if rates[p, s] > tops[p // BLOCK, s]:
                tops[p // BLOCK, s] = rates[p, s]
    return tops


@njit((F2, I1, I1, F1, I1))
def complete(rates: Floats, start: Ints, end: Ints, cover: Floats, chosen: Ints) -> float:
    """Changes GPUs' patterns while that brings the cover closer to the need; returns what is missing."""
    services, groups = rates.shape[1], start.shape[0]
    missing = 0.0
    for s in range(services):
        missing += max(0.0, 1.0 - cover[s])
    while missing > 0.0:
        before = missing
        for g in range(groups):
            now = chosen[g]
            least, by = missing, now
            for p in range(start[g], end[g]):
                short = 0.0
                for s in range(services):
                    gap = 1.0 - cover[s] + rates[now, s] - rates[p, s]
                    if gap > 0.0:
                        short += gap
                        if short >= least:
                            break
                if short < least:
                    least, by = short, p
            if by != now:
                for s in range(services):
                    cover[s] += rates[by, s] - rates[now, s]
                chosen[g] = by
                missing = least
        if missing >= before - 1e-12:
            break
    return missing


def block_arrays(groups: Sequence[Floats]) -> tuple[Floats, Floats, Ints, Ints]:
    """Joins groups of patterns into an array in which each begins a block: rates, maxima of blocks, starts, ends."""
    start, end, at = [], [], 0
    for rates in groups:
        start.append(at)
        end.append(at + len(rates))
        at += -(-len(rates) // BLOCK) * BLOCK
    services = groups[0].shape[1]
    whole = np.zeros((at, services))
    for first, last, rates in zip(start, end, groups, strict=True):
        whole[first:last] = rates
    return whole, block_tops(whole), np.array(start, dtype=np.int64), np.array(end, dtype=np.int64)
