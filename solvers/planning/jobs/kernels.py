"""Compiled: shares a GPU among a set of jobs, and finds where a job runs best."""

from __future__ import annotations

import numpy as np

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.fleet.kernels import is_within, most_felt, slow_by
from solvers.planning.jobs.arrays import BOARD, FLEET, JOBS, TRIAL, JobBoard, JobFleet, Jobs, JobTrial
from solvers.planning.search.arrays import F1, F2, F8, I1, I8

KEPT = 1e-9  # of slow-down, kept below each limit: another order of adding must not exceed it
STEPS = (16, 4, 1)  # SM% handed out at a time
CAREFUL = 6  # GPUs with jobs on which the parts of a further one are weighed with care
FEW_TRIES = 1000  # up to which GPUs are first tried with even parts


@njit((F1, F1, F1, F1, I1, F2, F8, F8, F1))
def most_slowdown(
    base_ms: Floats, rate: Floats, slo_ms: Floats, batch: Floats, row: Ints, rows: Floats, margin: float,
    utilization: float, into: Floats,
) -> None:  # fmt: skip
    """Finds, by halving, the largest factor on each instance's exec at which its rate is still accepted."""
    for i in range(base_ms.shape[0]):
        high = min(utilization * 1000.0 * batch[i] / (rate[i] * base_ms[i]), slo_ms[i] / (base_ms[i] * margin))
        low = 0.0
        for _ in range(50):
            middle = 0.5 * (low + high)
            judged = base_ms[i] * middle * margin
            if accepted_load(rows[row[i]], slo_ms[i] / judged) >= 0.001 * rate[i] * judged / batch[i]:
                low = middle
            else:
                high = middle
        into[i] = low


@njit((FLEET, JOBS, I8, I8, TRIAL), inner=True)
def weigh(f: JobFleet, j: Jobs, gpu: int, count: int, t: JobTrial) -> bool:
    """Tells if these jobs at these SM% are valid next to the residents; if so, writes their watts and seconds."""
    used, memory, pressure, watts = 0, 0.0, 0j, 0.0
    for i in range(count):
        profile = j.profile[t.job[i], f.kind[gpu]]
        used += t.sm[i]
        memory += j.memory_gib[profile]
        pressure += j.pressure[profile, t.sm[i]]
        power = j.power_w[profile, t.sm[i]]
        if f.clock[gpu] != 1.0:
            power *= f.clock[gpu] ** -j.power_exponent[profile]
        watts += power
    if used > f.spare[gpu] or memory > f.memory_gib[gpu] or watts > f.watts[gpu]:
        return False
    watts += slow_by(f.more_w[gpu], pressure)
    if watts > t.free_w[0]:
        return False
    left = 0.0
    if f.share_pressure == 0.0:
        if not is_within(pressure, f.bears[gpu], 0.0):
            return False
    else:
        left = f.share_pressure * (f.spare[gpu] - used) / 100.0
    if f.share_pressure > 0.0 or pressure.imag > 0.0:  # compute alone is within what all bear
        for i in range(f.start[gpu], f.start[gpu + 1]):
            s = f.sensitivity[i]
            if (1.0 + slow_by(s, f.beside[i] + pressure)) * (1.0 + most_felt(s) * left) > f.most[i]:
                return False
    seconds = 0.0
    for i in range(count):
        profile = j.profile[t.job[i], f.kind[gpu]]
        s = j.sensitivity[profile]
        slower = 1.0 + slow_by(s, f.pressure[gpu] + pressure - j.pressure[profile, t.sm[i]])
        slower *= 1.0 + most_felt(s) * left
        if f.clock[gpu] != 1.0:
            slower *= f.clock[gpu] ** j.clock_exponent[profile]
        pace = j.pace[profile, t.sm[i]] / slower
        if pace <= 0.0:
            return False
        short = 1.0 - pace * (1.0 - KEPT) / j.need[t.job[i]] if j.need[t.job[i]] > 0.0 else 0.0
        if short > 0.0:
            seconds += 1e9 * (1.0 + short)  # too late: first of all to be mended
        seconds += 1.0 / pace
    t.about[0], t.about[1] = watts, seconds
    return True


@njit((F8, F8, F8, F8, F8), inner=True)
def is_better(watts: float, seconds: float, than_watts: float, than_seconds: float, energy_price: float) -> bool:
    """Fewer late jobs; then a lower price of energy; then fewer seconds a unit."""
    if seconds >= 1e9 or than_seconds >= 1e9 or energy_price == 0.0 or watts == than_watts:
        return seconds < than_seconds * (1.0 - 1e-12)
    return watts < than_watts


@njit((FLEET, JOBS, I8, I8, TRIAL), inner=True)
def start(f: JobFleet, j: Jobs, gpu: int, count: int, t: JobTrial) -> bool:
    """Takes even parts of the spare SM% (Mudi, M7) if these are valid, else the least that each was measured at."""
    for i in range(count):
        profile = j.profile[t.job[i], f.kind[gpu]]
        t.sm[i] = max(j.low[profile], min(j.high[profile], f.spare[gpu] // count))
    if weigh(f, j, gpu, count, t) and t.about[1] < 1e9:
        return True
    for i in range(count):
        t.sm[i] = j.low[j.profile[t.job[i], f.kind[gpu]]]
    return weigh(f, j, gpu, count, t)


@njit((FLEET, JOBS, I8, I8, F8, I8, TRIAL), inner=True)
def share_out(f: JobFleet, j: Jobs, gpu: int, count: int, energy_price: float, tries: int, t: JobTrial) -> bool:
    """Finds the best SM% for these jobs on this GPU; False if they do not fit or a job would be late.

    All splits where `tries` allows; else from the least SM% of each, what helps most at a time."""
    splits = 1.0
    for i in range(count):
        profile = j.profile[t.job[i], f.kind[gpu]]
        if profile < 0 or j.low[profile] > f.spare[gpu]:
            return False
        splits *= min(j.high[profile], f.spare[gpu]) - j.low[profile] + 1
        t.sm[i] = j.low[profile]
    watts, seconds, found = np.inf, np.inf, False
    if count == 1 and energy_price == 0.0:
        # From many SM% to few: its pace depends on its own share alone, so what fewer can give is known.
        profile = j.profile[t.job[0], f.kind[gpu]]
        sm = min(j.high[profile], f.spare[gpu])
        while sm >= j.low[profile]:
            t.sm[0] = sm
            if weigh(f, j, gpu, 1, t):
                if t.about[1] < seconds:
                    watts, seconds, found = t.about[0], t.about[1], True
                    t.best[0] = sm
                if j.most_pace[profile, sm] <= j.pace[profile, t.best[0]]:
                    break
            sm -= 1
    elif splits <= tries:
        while True:
            used = 0
            for i in range(count):
                used += t.sm[i]
            fits = used <= f.spare[gpu] and weigh(f, j, gpu, count, t)
            if fits and (not found or is_better(t.about[0], t.about[1], watts, seconds, energy_price)):
                watts, seconds, found = t.about[0], t.about[1], True
                for i in range(count):
                    t.best[i] = t.sm[i]
            at = 0
            while at < count:
                profile = j.profile[t.job[at], f.kind[gpu]]
                t.sm[at] += 1
                if t.sm[at] <= min(j.high[profile], f.spare[gpu]):
                    break
                t.sm[at] = j.low[profile]
                at += 1
            if at == count:
                break
    else:
        found = start(f, j, gpu, count, t)
        watts, seconds = t.about[0], t.about[1]
        for step in STEPS:
            while found:
                to, from_, to_watts, to_seconds = -1, -1, watts, seconds
                for i in range(count):
                    profile = j.profile[t.job[i], f.kind[gpu]]
                    if t.sm[i] + step > j.high[profile]:
                        continue
                    t.sm[i] += step
                    for k in range(-1, count):  # new SM%, or another's
                        if k == i:
                            continue
                        if k >= 0:
                            if t.sm[k] - step < j.low[j.profile[t.job[k], f.kind[gpu]]]:
                                continue
                            t.sm[k] -= step
                        fits = weigh(f, j, gpu, count, t)
                        if fits and is_better(t.about[0], t.about[1], to_watts, to_seconds, energy_price):
                            to, from_, to_watts, to_seconds = i, k, t.about[0], t.about[1]
                        if k >= 0:
                            t.sm[k] += step
                    t.sm[i] -= step
                if to < 0:
                    break
                t.sm[to] += step
                if from_ >= 0:
                    t.sm[from_] -= step
                watts, seconds = to_watts, to_seconds
        for i in range(count):
            t.best[i] = t.sm[i]
    t.about[0], t.about[1] = watts, seconds
    return found and seconds < 1e9


@njit((FLEET, JOBS, BOARD, I8, I8, TRIAL), inner=True)
def gather(f: JobFleet, j: Jobs, b: JobBoard, gpu: int, job: int, t: JobTrial) -> bool:
    """Makes a trial of this job and those that are there; False if it cannot run next to them, however they share."""
    profile = j.profile[job, f.kind[gpu]]
    count = b.taken[gpu]
    if profile < 0 or count >= f.seats[gpu] or not is_within(j.least_pressure[profile], f.bears[gpu], 0.0):
        return False
    node = f.node[gpu]
    if j.cpu_cores[profile] > b.cpu_cores[node] or j.host_memory_gib[profile] > b.host_memory_gib[node]:
        return False
    lows, memory = j.low[profile], j.memory_gib[profile]
    for i in range(count):
        t.job[i] = b.job[gpu, i]
        other = j.profile[t.job[i], f.kind[gpu]]
        lows += j.low[other]
        memory += j.memory_gib[other]
    t.job[count] = job
    t.free_w[0] = b.free_w[0] + b.watts[gpu]
    return bool(lows <= f.spare[gpu] and memory <= f.memory_gib[gpu])


@njit((FLEET, JOBS, BOARD, I8, I8, F8, I8, TRIAL))
def try_beside(
    f: JobFleet, j: Jobs, b: JobBoard, gpu: int, job: int, energy_price: float, tries: int, t: JobTrial
) -> bool:
    """Tries this job next to those that are there: `about` becomes the watts and seconds of all of them."""
    if not gather(f, j, b, gpu, job, t):
        return False
    return share_out(f, j, gpu, b.taken[gpu] + 1, energy_price, tries, t)


@njit((FLEET, JOBS, BOARD, I8, I8, F1), inner=True)
def quickest(f: JobFleet, j: Jobs, b: JobBoard, job: int, but: int, into: Floats) -> None:
    """Writes for each GPU a lower bound on this job's seconds a unit there: the others at their least SM%.

    It is infinite where the job cannot run. All GPUs are in one loop: a call would cost more than the computation.
    """
    for gpu in range(f.kind.shape[0]):
        into[gpu] = np.inf
        profile = j.profile[job, f.kind[gpu]]
        if profile < 0 or b.is_open[gpu] == 0 or gpu == but or b.taken[gpu] >= f.seats[gpu]:
            continue
        spare, pressure, memory = f.spare[gpu], f.pressure[gpu], f.memory_gib[gpu] - j.memory_gib[profile]
        added = j.least_pressure[profile]
        for i in range(b.taken[gpu]):
            other = j.profile[b.job[gpu, i], f.kind[gpu]]
            spare -= j.low[other]
            pressure += j.least_pressure[other]
            added += j.least_pressure[other]
            memory -= j.memory_gib[other]
        if j.low[profile] > spare or memory < 0.0 or not is_within(added, f.bears[gpu], 0.0):
            continue
        pace = j.most_pace[profile, spare]
        slower = 1.0 + slow_by(j.sensitivity[profile], pressure)
        if f.clock[gpu] != 1.0:
            slower *= f.clock[gpu] ** j.clock_exponent[profile]
        if pace > 0.0:
            into[gpu] = slower / pace


@njit((FLEET, JOBS, BOARD, I8, I8, F8, I8, I8, F1, TRIAL), makes_arrays=True)
def best_home(
    f: JobFleet, j: Jobs, b: JobBoard, job: int, but: int, energy_price: float, tries: int, most: int, gain: Floats,
    t: JobTrial,
) -> int:  # fmt: skip
    """Finds the open GPU where this job adds least, other than `but`; -1 if none takes it.

    `gain` becomes the watts and the seconds that it adds, and the number of sets weighed. Every GPU is tried with even
    parts first, and the best ones are shared out with care. If energy has a price, the first try decides nothing, and
    the search ends after `most` GPUs.
    """
    gpus = f.kind.shape[0]
    quick = np.empty(gpus)
    quickest(f, j, b, job, but, quick)
    first, least = -1, np.inf
    for gpu in range(gpus):  # the most promising one first: it spares most of the others
        if quick[gpu] < least and b.taken[gpu] == 0:
            first, least = gpu, quick[gpu]
    chosen = np.full(CAREFUL, -1, np.int64)
    guess = np.full(CAREFUL, np.inf)
    home, watts, seconds, bar = -1, np.inf, np.inf, 1e300
    gain[2] = 0.0
    for turn in range(-1, gpus):
        gpu = first if turn < 0 else turn
        if gpu < 0 or quick[gpu] > bar or quick[gpu] == np.inf or (turn >= 0 and gpu == first):
            continue
        if home >= 0 and gain[2] >= most:
            break
        if b.taken[gpu] > 0 and energy_price == 0.0 and tries <= FEW_TRIES:
            gain[2] += 0.1
            if gather(f, j, b, gpu, job, t) and start(f, j, gpu, b.taken[gpu] + 1, t):
                more = t.about[1] - b.seconds[gpu]
                at = CAREFUL - 1
                if more < guess[at]:
                    while at > 0 and guess[at - 1] > more:
                        chosen[at], guess[at] = chosen[at - 1], guess[at - 1]
                        at -= 1
                    chosen[at], guess[at] = gpu, more
                    if more < bar:
                        bar = more
            continue
        gain[2] += 1.0
        if try_beside(f, j, b, gpu, job, energy_price, tries, t):
            more_w, more_s = t.about[0] - b.watts[gpu], t.about[1] - b.seconds[gpu]
            if home < 0 or is_better(more_w, more_s, watts, seconds, energy_price) or (
                more_w == watts and more_s == seconds and gpu < home
            ):  # fmt: skip
                home, watts, seconds = gpu, more_w, more_s
                if energy_price == 0.0:
                    bar = min(bar, seconds)
    for at in range(CAREFUL):
        if chosen[at] < 0:
            break
        gpu = chosen[at]
        gain[2] += 1.0
        if try_beside(f, j, b, gpu, job, energy_price, tries, t):
            more_w, more_s = t.about[0] - b.watts[gpu], t.about[1] - b.seconds[gpu]
            if home < 0 or is_better(more_w, more_s, watts, seconds, energy_price):
                home, watts, seconds = gpu, more_w, more_s
    gain[0], gain[1] = watts, seconds
    return home


@njit((FLEET, JOBS, BOARD, I8, I8, F8, I8, TRIAL))
def settle(
    f: JobFleet, j: Jobs, b: JobBoard, gpu: int, count: int, energy_price: float, tries: int, t: JobTrial
) -> bool:
    """Makes the jobs in `t.job` all that this GPU runs; if they do not fit, nothing changes."""
    node = f.node[gpu]
    t.free_w[0] = b.free_w[0] + b.watts[gpu] + KEPT  # what ran there before may always run there again
    fits = True
    if count > 0:
        fits = share_out(f, j, gpu, count, energy_price, tries, t)
    if not fits:
        return False
    for i in range(b.taken[gpu]):
        profile = j.profile[b.job[gpu, i], f.kind[gpu]]
        b.cpu_cores[node] += j.cpu_cores[profile]
        b.host_memory_gib[node] += j.host_memory_gib[profile]
        if b.home[b.job[gpu, i]] == gpu:
            b.home[b.job[gpu, i]] = -1
    b.free_w[0] += b.watts[gpu]
    b.watts[gpu], b.seconds[gpu] = 0.0, 0.0
    if count > 0:
        b.watts[gpu], b.seconds[gpu] = t.about[0], t.about[1]
        b.free_w[0] -= t.about[0]
    b.taken[gpu] = count
    for i in range(count):
        profile = j.profile[t.job[i], f.kind[gpu]]
        b.cpu_cores[node] -= j.cpu_cores[profile]
        b.host_memory_gib[node] -= j.host_memory_gib[profile]
        b.job[gpu, i], b.sm[gpu, i] = t.job[i], t.best[i]
        b.home[t.job[i]] = gpu
    return True
