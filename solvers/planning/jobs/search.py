"""Places jobs, the most expensive to leave waiting first, each where it adds least; then makes single changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solvers.planning.jobs.arrays import SEATS
from solvers.planning.jobs.placement import NEAR_SHARE, JobPlacement, less, may_open

ROUNDS = 8
EXCHANGE_WORK = 10  # an exchange counts for so many GPUs


def search(placement: JobPlacement, budget: int) -> None:
    """Places running jobs, then all others, then makes improvements while `budget` (GPUs looked at) lasts."""
    place_staying(placement)
    place_running(placement)
    fill(placement)
    for _ in range(ROUNDS):
        before = placement.value
        for step in (close, push_aside, move, swap):
            if placement.work < budget:
                step(placement, budget)
        fill(placement)
        if not less(placement.value, before):
            break


def place_staying(s: JobPlacement) -> None:
    """Places the running jobs that must stay, with the others of their GPU where only all together are valid.

    Where shares are priced, strangers on SMs that jobs do not use slow the services.
    """
    state = s.room.problem.state
    number = {job.name: place for place, job in enumerate(s.room.jobs)}
    for job, placed in sorted(s.room.stays.items()):
        gpu = s.room.number_of.get(placed.place, -1)
        together = sorted({number[job.job] for job in (state.jobs if state else ()) if job.place == placed.place})
        if s.board.home[job] < 0 and (gpu < 0 or not (s.put(job, gpu) or s.put_all(together, gpu))):
            s.left_out.add(job)


def place_running(s: JobPlacement) -> None:
    """Places the other running jobs where they run, if that is valid and no more expensive than waiting.

    Where not all fit any more, those that are the least expensive to leave give way.
    """
    room, state = s.room, s.room.problem.state
    number = {job.name: place for place, job in enumerate(room.jobs)}
    found = [(number[placed.job], placed.place) for placed in (state.jobs if state else ())]
    running = sorted(found, key=lambda line: (-s.penalty[line[0]], line))
    for job, where in running * 2:  # a job that may not open its GPU follows one that may
        gpu = room.number_of.get(where, -1)
        if s.board.home[job] >= 0 or job in room.stays or gpu < 0:
            continue
        if s.board.is_open[gpu] or may_open(room.jobs[job], float(room.fleet.price[gpu])):
            before, mark = s.cost, s.mark()
            if s.put(job, gpu) and s.cost > before * (1 + NEAR_SHARE):
                s.back(mark)


def fill(s: JobPlacement) -> None:
    """Places every waiting job, the most expensive to leave first, then the slow ones: they have most to lose."""
    work = s.room.work
    waiting = s.waiting()
    fastest = {
        job: max((float(work.most_pace[p, -1]) for p in work.profile[job] if p >= 0), default=0.0) for job in waiting
    }
    for job in sorted(waiting, key=lambda job: (-s.penalty[job], fastest[job], job)):
        place(s, job)
    open_together(s)


def place(s: JobPlacement, job: int) -> bool:
    """Places a job on an open GPU or on one opened for it, whichever is cheaper, if waiting costs more."""
    limit = s.penalty[job] * (1 + NEAR_SHARE)
    gpu, cost, seconds = s.home(job)
    found = (cost, seconds, gpu) if gpu >= 0 and cost <= limit else None
    for other in s.openable(job):
        price = float(s.room.fleet.price[other])
        if (found and price >= found[0] and price > 0) or not s.fits(job, other):
            continue
        cost, seconds = s.added(other)
        if price + cost <= limit and (found is None or less((price + cost, 0, seconds), (found[0], 0, found[1]))):
            found = (price + cost, seconds, other)
    return found is not None and s.put(job, found[2])


def open_together(s: JobPlacement) -> None:
    """Opens GPUs, or nodes, that are too expensive for any single waiting job, but not for several together."""
    for (_, price), gpus in s.pools.items():
        for gpu in gpus:
            if s.board.is_open[gpu]:
                continue
            together = s.room.opened_with[gpu]
            waiting = s.waiting()
            allowing = [job for job in waiting if may_open(s.room.jobs[job], price)]
            if not allowing or sum(s.penalty[job] for job in waiting[: SEATS * len(together)]) <= price:
                break
            before, mark = s.cost, s.mark()
            if any(put_on_one(s, job, together) for job in allowing):  # one of them pays
                for job in waiting:
                    if s.board.home[job] < 0:
                        put_on_one(s, job, together)
            if s.cost >= before * (1 - NEAR_SHARE):
                s.back(mark)
                break


def put_on_one(s: JobPlacement, job: int, gpus: Sequence[int]) -> bool:
    """Puts a job on one of these GPUs, the one with fewest jobs that takes it."""
    return any(s.put(job, gpu) for gpu in sorted(gpus, key=lambda gpu: int(s.board.taken[gpu])))


def close(s: JobPlacement, budget: int) -> None:
    """Moves the jobs of an opened GPU, or node, elsewhere, or lets them wait, if that is cheaper than its price."""
    for gpu in np.flatnonzero((s.room.fleet.price > 0) & (s.board.taken > 0)).tolist():
        jobs = s.sharing(gpu)
        if s.work >= budget or any(job in s.room.stays for job in jobs):
            continue
        before, mark = s.value, s.mark()
        s.empty(gpu)
        for job in sorted(jobs, key=lambda job: (-s.penalty[job], job)):
            home, cost, _ = s.home(job)
            if home >= 0 and cost <= s.penalty[job]:
                s.put(job, home)
        if not less(s.value, before):
            s.back(mark)


def push_aside(s: JobPlacement, budget: int) -> None:
    """Gives a waiting job the place of a job that finds another, or that is cheaper to leave."""
    for job in s.waiting():
        for other in s.movable():
            if s.work >= budget:
                return
            gpu = int(s.board.home[other])
            if s.room.work.profile[job, s.room.fleet.kind[gpu]] < 0 or may_not_pay(s, job, other, gpu):
                continue
            before, mark = s.value, s.mark()
            if s.take(other) and s.put(job, gpu):
                place(s, other)
                if less(s.value, before):
                    break
            s.back(mark)


def may_not_pay(s: JobPlacement, job: int, other: int, gpu: int) -> bool:
    """Returns whether the GPU was opened, and without `other` no job is left whose price allows it."""
    price = float(s.room.fleet.price[gpu])
    rest = [third for third in s.sharing(gpu) if third != other]
    return price > 0 and not any(may_open(s.room.jobs[candidate], price) for candidate in [*rest, job])


def move(s: JobPlacement, budget: int) -> None:
    """Moves jobs, those of the slowest GPUs first, to where they add less."""
    for job in sorted(s.movable(), key=lambda job: (-float(s.board.seconds[s.board.home[job]]), job)):
        gpu = int(s.board.home[job])
        if s.work >= budget or leaves_unpaid(s, job):
            continue
        before, mark = s.value, s.mark()
        home = s.home(job, gpu)[0] if s.take(job) else -1
        if home < 0 or not s.put(job, home) or not less(s.value, before):
            s.back(mark)


def leaves_unpaid(s: JobPlacement, job: int) -> bool:
    """Returns whether other jobs share a GPU that only this job may open."""
    gpu = int(s.board.home[job])
    rest = [other for other in s.sharing(gpu) if other != job]
    price = float(s.room.fleet.price[gpu])
    return price > 0 and bool(rest) and not any(may_open(s.room.jobs[other], price) for other in rest)


def swap(s: JobPlacement, budget: int) -> None:
    """Exchanges two jobs of different GPUs."""
    running = s.movable()
    for number, job in enumerate(running):
        for other in running[number + 1 :]:
            if s.work >= budget:
                return
            here, there = int(s.board.home[job]), int(s.board.home[other])
            s.work += EXCHANGE_WORK
            work, fleet = s.room.work, s.room.fleet
            if here == there or work.profile[job, fleet.kind[there]] < 0 or work.profile[other, fleet.kind[here]] < 0:
                continue
            if may_not_pay(s, other, job, here) or may_not_pay(s, job, other, there):
                continue
            before, mark = s.value, s.mark()
            are_taken = s.take(job) and s.take(other)
            if not (are_taken and s.put(job, there) and s.put(other, here) and less(s.value, before)):
                s.back(mark)
