"""The compiled loops of online placement. A host's score for a kind of request is cached until the host changes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit

Whole = NDArray[np.int64]
Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]  # two-dimensional
Table = NDArray[np.float64]

LEAST_WASTE, FRAGMENTATION, BEST_FIT = 0, 1, 2
CPU, MEMORY, MILLI, GPUS, TYPES = 0, 1, 2, 3, 4  # columns of a request; TYPES holds a bit for each GPU type


@njit("boolean(int64[:], int64[:], int64, int64, int64[:])")
def fits(host_free: Whole, free: Whole, gpus: int, gpu_type: int, request: Whole) -> bool:
    """Returns whether a host can take a request. `host_free` is CPU and host memory, `free` the milli of each GPU."""
    if host_free[0] < request[0] or host_free[1] < request[1] or request[4] & gpu_type == 0:
        return False
    able = 0
    for gpu in range(gpus):
        if free[gpu] >= request[2]:
            able += 1
    return bool(able >= request[3])


@njit("float64(int64, int64, int64[:], int64, float64[:], float64[:, :], float64[:])", inner=True)
def waste(cpu: int, memory: int, free: Whole, gpus: int, table: Numbers, appetites: Table, weight: Numbers) -> float:
    """Returns the expected unused part of a host's GPUs: parts that no request fills, or that lack CPU or memory."""
    total = 0
    out = 0.0
    for gpu in range(gpus):
        out += table[free[gpu]]
        total += free[gpu]
    for row in range(appetites.shape[0]):
        short = appetites[row, 0] * total - cpu
        if short > 0.0:
            out += weight[0] * short / appetites[row, 0]
        short = appetites[row, 1] * total - memory
        if short > 0.0:
            out += weight[0] * short / appetites[row, 1]
    return out


@njit("float64(int64, int64[:], int64, int64, int64[:, :], float64[:])", inner=True)
def fragmentation(cpu: int, free: Whole, gpus: int, gpu_type: int, typical: Rows, frequency: Numbers) -> float:
    """Returns FGD's fragmentation (section 3): the free milli that a random request of the typical mix cannot use."""
    total = 0
    for gpu in range(gpus):
        total += free[gpu]
    out = 0.0
    for kind in range(typical.shape[0]):
        milli = typical[kind, 2]
        able = 0
        unfit = 0
        for gpu in range(gpus):
            if free[gpu] >= milli:
                able += 1
            else:
                unfit += free[gpu]
        usable = milli > 0 and able >= typical[kind, 3] and cpu >= typical[kind, 0] and typical[kind, 4] & gpu_type != 0
        out += frequency[kind] * (unfit if usable else total)
    return out


@njit("void(int64[:], int64, int64[:], int64)", inner=True)
def take(free: Whole, gpus: int, request: Whole, device: int) -> None:
    """Takes what a request needs from the GPUs: a part of `device`, or the first whole ones."""
    if request[3] == 1 and request[2] < 1000:
        free[device] -= request[2]
        return
    wanted = request[3]
    for gpu in range(gpus):
        if wanted > 0 and free[gpu] == 1000:
            free[gpu] = 0
            wanted -= 1


@njit(
    "float64(int64, int64, int64, int64[:], int64, int64, float64, float64[:], float64[:, :], float64[:],"
    " int64[:, :], float64[:])",
    inner=True,
)
def loss(
    rule: int,
    cpu: int,
    memory: int,
    free: Whole,
    gpus: int,
    gpu_type: int,
    scarcity: float,
    table: Numbers,
    appetites: Table,
    weight: Numbers,
    typical: Rows,
    frequency: Numbers,
) -> float:
    """Returns what the rule counts as lost on a host in this state, in milli; a free GPU of a scarce type is a gain."""
    out = float(weight[1] * fragmentation(cpu, free, gpus, gpu_type, typical, frequency))
    if rule == 0:
        out += waste(cpu, memory, free, gpus, table, appetites, weight)
        for gpu in range(gpus):
            out -= scarcity * free[gpu]
    return out


@njit(
    "Tuple((float64, int64))(int64, int64[:], int64[:], int64, int64, float64, int64[:], int64[:], float64[:],"
    " float64[:, :], float64[:], int64[:, :], float64[:])",
    inner=True,
)
def score(
    rule: int,
    host_free: Whole,
    free: Whole,
    gpus: int,
    gpu_type: int,
    scarcity: float,
    request: Whole,
    spare: Whole,
    table: Numbers,
    appetites: Table,
    weight: Numbers,
    typical: Rows,
    frequency: Numbers,
) -> tuple[float, int]:
    """Returns the score of a request on a host where it fits (higher is better), and the GPU if it shares one."""
    cpu = host_free[0] - request[0]
    memory = host_free[1] - request[1]
    total = 0
    for gpu in range(gpus):
        spare[gpu] = free[gpu]
        total += free[gpu]
    before = 0.0
    if rule != 2:
        before = loss(
            rule,
            host_free[0],
            host_free[1],
            free,
            gpus,
            gpu_type,
            scarcity,
            table,
            appetites,
            weight,
            typical,
            frequency,
        )
    best = -1e300
    chosen = -1
    if request[3] == 1 and request[2] < 1000:
        for gpu in range(gpus):
            if free[gpu] < request[2]:
                continue
            is_twin = False  # an earlier GPU is equally free, so it has the same score
            for earlier in range(gpu):
                is_twin = is_twin or free[earlier] == free[gpu]
            if is_twin:
                continue
            value = -float(free[gpu])
            if rule != 2:
                spare[gpu] -= request[2]
                value = before - loss(
                    rule, cpu, memory, spare, gpus, gpu_type, scarcity, table, appetites, weight, typical, frequency
                )
                spare[gpu] += request[2]
            if rule == 1:
                value = np.floor(100.0 / (1.0 + np.exp(-value / 1000.0)))
            if value > best:
                best = value
                chosen = gpu
    else:
        take(spare, gpus, request, -1)
        if rule != 2:
            best = before - loss(
                rule, cpu, memory, spare, gpus, gpu_type, scarcity, table, appetites, weight, typical, frequency
            )
        if rule == 1:
            best = np.floor(100.0 / (1.0 + np.exp(-best / 1000.0)))
    if rule == 2:
        left_over = cpu / weight[0] * 0.5 + (total - request[2] * request[3]) / weight[1] * 0.5
        best = np.floor((1.0 - left_over) * 100.0)
    return best, chosen


@njit(
    "Tuple((int64, int64))(int64, int64, float64, int64[:, :], int64[:, :], int64[:, :], int64[:], int64[:],"
    " float64[:], int64[:], int64[:, :], float64[:, :], int64[:, :], int64[:], float64[:], float64[:, :],"
    " float64[:], int64[:, :], float64[:])"
)
def choose(
    rule: int,
    kind: int,
    hold_back: float,
    kinds: Rows,
    host_free: Rows,
    free: Rows,
    gpus: Whole,
    gpu_types: Whole,
    scarcity: Numbers,
    version: Whole,
    scored: Rows,
    scores: Table,
    devices: Rows,
    spare: Whole,
    table: Numbers,
    appetites: Table,
    weight: Numbers,
    typical: Rows,
    frequency: Numbers,
) -> tuple[int, int]:
    """Returns the best host for a kind of request, the first of equals, and the GPU it would share there."""
    request = kinds[kind]
    best = -1e300
    host = -1
    for here in range(gpus.shape[0]):
        if scored[kind, here] != version[here]:
            scored[kind, here] = version[here]
            if fits(host_free[here], free[here], gpus[here], gpu_types[here], request):
                scores[kind, here], devices[kind, here] = score(
                    rule, host_free[here], free[here], gpus[here], gpu_types[here], scarcity[here], request, spare,
                    table, appetites, weight, typical, frequency,
                )  # fmt: skip
            else:
                scores[kind, here] = -1e300
        if scores[kind, here] > best:
            best = scores[kind, here]
            host = here
    if host < 0:
        return -1, -1
    if request[3] > 0 and hold_back < 1e18:
        cpu, memory = host_free[host, 0], host_free[host, 1]
        before = waste(cpu, memory, free[host], gpus[host], table, appetites, weight)
        for gpu in range(gpus[host]):
            spare[gpu] = free[host, gpu]
        take(spare, gpus[host], request, devices[kind, host])
        after = waste(cpu - request[0], memory - request[1], spare, gpus[host], table, appetites, weight)
        if after - before > hold_back * request[2] * request[3]:
            return -2, -1
    return host, devices[kind, host]
