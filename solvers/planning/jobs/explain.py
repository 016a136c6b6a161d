"""Explains why a job is not placed and tries to find the least change that would place it while all else stays."""

from __future__ import annotations

from datetime import timedelta
from math import ceil, inf

import numpy as np

from solvers.planning.jobs.placement import JobPlacement
from solvers.planning.plan import Unplaced
from solvers.planning.pressures import most_felt, slow_by
from solvers.planning.problem import Job

FULL_JOBS = 20  # jobs of a plan with a relaxation
SECONDS_A_YEAR = 31_557_600


def unplaced(s: JobPlacement) -> tuple[Unplaced, ...]:
    """Explains the jobs that wait and the jobs that stay but miss their deadline, the most expensive first."""
    late = [job for job in sorted(s.room.stays) if is_late(s, job)]
    found = [Unplaced(s.room.jobs[job].name, *_explain_staying(s, job)) for job in [*sorted(s.left_out), *late]]
    for place, job in enumerate(s.waiting()):
        found.append(Unplaced(s.room.jobs[job].name, reason(s, job), relaxation(s, job) if place < FULL_JOBS else ""))
    return tuple(found)


def is_late(s: JobPlacement, job: int) -> bool:
    """Returns whether the job must stay where it runs, too slowly for its deadline."""
    spec, state = s.room.jobs[job], s.room.problem.state
    if spec.deadline is None or state is None or state.now is None or s.board.home[job] < 0:
        return False
    seconds = (spec.deadline - state.now).total_seconds()
    return seconds <= 0 or pace(s, job) * seconds < spec.units * (1 - 1e-9)


def pace(s: JobPlacement, job: int) -> float:
    """Returns the units a second of a running job."""
    gpu = int(s.board.home[job])
    fleet, work = s.room.fleet, s.room.work
    profile = int(work.profile[job, fleet.kind[gpu]])
    sms = {int(s.board.job[gpu, seat]): int(s.board.sm[gpu, seat]) for seat in range(int(s.board.taken[gpu]))}
    pressure = complex(fleet.pressure[gpu])
    pressure += sum(
        complex(work.pressure[work.profile[other, fleet.kind[gpu]], sm]) for other, sm in sms.items() if other != job
    )
    outside = fleet.share_pressure * (fleet.spare[gpu] - sum(sms.values())) / 100
    feels = complex(work.sensitivity[profile])
    slower = (1 + slow_by(feels, pressure)) * (1 + most_felt(feels) * outside)
    slower *= fleet.clock[gpu] ** work.clock_exponent[profile]
    return float(work.pace[profile, sms[job]] / slower)


def _explain_staying(s: JobPlacement, job: int) -> tuple[str, str]:
    placed = s.room.stays[job]
    if job in s.left_out:
        return (f"it runs on {placed.node}/{placed.gpu} and is not preemptible, but what the plan puts there "
                "leaves no room for it", "preemptible: true")  # fmt: skip
    return (f"it is not preemptible, and at {pace(s, job):.6g} units a second on {placed.node}/{placed.gpu} it misses "
            "its deadline", _later(s, job, pace(s, job)))  # fmt: skip


def reason(s: JobPlacement, job: int) -> str:
    """Counts what excludes the GPUs that it has a profile for."""
    fleet, work, board = s.room.fleet, s.room.work, s.board
    profile = work.profile[job, fleet.kind]
    of = np.flatnonzero(profile >= 0)
    spec, now = s.room.jobs[job], s.room.problem.state.now if s.room.problem.state else None
    if spec.deadline and now and spec.deadline <= now:
        return f"its deadline, {spec.deadline.isoformat()}, has passed"
    if not len(of):
        return f"no GPU of a type in its profiles ({', '.join(sorted(s.room.jobs[job].profiles))}) is left for it"
    p = profile[of]
    tests = {
        "no free place for a job": board.taken[of] >= fleet.seats[of],
        "too few SM% left": fleet.spare[of] < work.low[p],
        "too little GPU memory left": fleet.memory_gib[of] < work.memory_gib[p],
        "services that tolerate no more pressure": (fleet.bears[of].real < work.least_pressure[p].real)
        | (fleet.bears[of].imag < work.least_pressure[p].imag),
        "too few CPU cores left": board.cpu_cores[fleet.node[of]] < work.cpu_cores[p],
        "too little host memory left": board.host_memory_gib[fleet.node[of]] < work.host_memory_gib[p],
        _name_price(spec): board.is_open[of] == 0,
    }
    if spec.deadline and now and not (_fastest(s, job) >= work.need[job]):
        seconds = (spec.deadline - now).total_seconds()
        return f"its deadline is in {seconds:.6g} s, and no GPU with room for it finishes it by then"
    open_ = np.ones(len(of), np.bool_)
    counts = []
    for words, fails in tests.items():
        count = int((open_ & fails).sum())
        if count:
            counts.append(f"{count} with {words}")
        open_ &= ~fails
    if open_.any():
        counts.append(f"{int(open_.sum())} {_explain_open(s, job)}")
    return f"of {len(of)} GPUs it has a profile for: {', '.join(counts)}"


def _name_price(spec: Job) -> str:
    """Names why a job does not pay for a GPU that nothing else holds."""
    if spec.deadline is None and spec.max_price_per_hour is None:
        return "a price, and it may pay none: it states neither maxPricePerHour nor a deadline"
    return "a price above its limit or above the cost of its wait"


def _explain_open(s: JobPlacement, job: int) -> str:
    gpu, cost, _ = s.home(job)
    if gpu >= 0 and cost > s.penalty[job]:
        return f"where its energy, {cost:.4g} an hour, costs more than its wait, {s.penalty[job]:.4g}"
    need = float(s.room.work.need[job])
    late = f"too slow for the {need:.6g} units a second of its deadline, or " if need > 0 else ""
    return f"{late}with too little capacity left next to what runs there"


def _fastest(s: JobPlacement, job: int, most_cost: float = inf) -> float:
    """Returns the units a second on the best GPU with room at this cost, whatever its deadline; infinite if none."""
    need = float(s.room.work.need[job])
    s.room.work.need[job] = 0.0
    home, cost, _ = s.home(job)
    gpus = [gpu for gpu in s.openable(job) if s.fits(job, gpu) and _price_with_energy(s, gpu) <= most_cost]
    if home >= 0 and cost <= most_cost:
        gpus.append(home)
    found = [_pace_on(s, job, gpu) for gpu in gpus]
    s.room.work.need[job] = need
    return max(found, default=0.0) or inf


def relaxation(s: JobPlacement, job: int) -> str:
    """Proposes the least change that helps: a later deadline, a higher price or priority, or one more GPU."""
    room, spec = s.room, s.room.jobs[job]
    need = float(room.work.need[job])
    if cheapest := _cheapest(s, job):
        return _dearer(s, job, cheapest)
    if need > 0:
        room.work.need[job] = 0.0
        later = _finished_later(s, job)
        room.work.need[job] = need
        if later:
            return later
    types = sorted(name for name in spec.profiles if name in room.problem.gpu_types)
    if not types:
        return f"a profile on {' or '.join(sorted(room.problem.gpu_types))}"
    paid = "" if spec.deadline or spec.max_price_per_hour else " and a maxPricePerHour of its price, unless it is owned"
    return f"one more GPU of {types[0]}{paid}"


def _finished_later(s: JobPlacement, job: int) -> str:
    """Returns the deadline that some GPU meets, with the price or priority that it takes; empty if none has room."""
    fastest = _fastest(s, job, s.penalty[job])
    if fastest < inf:
        return _later(s, job, fastest)
    cheapest = _cheapest(s, job)
    if cheapest is None:
        return ""
    return f"{_later(s, job, _pace_on(s, job, cheapest[2]))} and {_dearer(s, job, cheapest)}"


def _dearer(s: JobPlacement, job: int, cheapest: tuple[float, float, int]) -> str:
    """Returns the price and the priority at which the job may run on this GPU."""
    spec, words = s.room.jobs[job], []
    cost, price, gpu = cheapest
    if spec.deadline is None or (spec.max_price_per_hour is not None and price > spec.max_price_per_hour):
        words.append(f"maxPricePerHour: {_up(cost):g}")
    if spec.deadline is not None and cost > s.penalty[job]:
        words.append(f"priority: {ceil(cost * (1 + 1e-9) / s.room.problem.policy.unplaced_price * 100)}")
    node, index = s.room.places[gpu]
    return f"{' and '.join(words)}; {node}/{index} has room for it"


def _cheapest(s: JobPlacement, job: int) -> tuple[float, float, int] | None:
    """Returns the cheapest GPU where it could run if it paid: the cost, the GPU's price, the GPU."""
    gpu, cost, _ = s.home(job)
    found = [(cost, 0.0, gpu)] if gpu >= 0 else []
    for (_, price), gpus in s.pools.items():
        first = next((gpu for gpu in gpus if not s.board.is_open[gpu] and s.fits(job, gpu)), -1)
        if first >= 0 and s.fits(job, first):
            found.append((_price_with_energy(s, first), price, first))
    return min(found, default=None)


def _price_with_energy(s: JobPlacement, gpu: int) -> float:
    """Returns the cost an hour of opening a GPU for the job that was fitted last."""
    return float(s.room.fleet.price[gpu]) + s.added(gpu)[0]


def _pace_on(s: JobPlacement, job: int, gpu: int) -> float:
    """Returns its units a second on this GPU next to the jobs there; 0 if it does not fit."""
    mark = s.mark()
    found = pace(s, job) if s.put(job, gpu) else 0.0
    s.back(mark)
    return found


def _later(s: JobPlacement, job: int, units_per_second: float) -> str:
    now = s.room.problem.state.now if s.room.problem.state else None
    assert now
    seconds = ceil(s.room.jobs[job].units / units_per_second * (1 + 1e-9)) + 1
    try:
        return f"deadline: {(now + timedelta(seconds=seconds)).isoformat()}"
    except OverflowError:
        return f"fewer steps or requests: these would take {seconds / SECONDS_A_YEAR:.3g} years"


def _up(value: float) -> float:
    return ceil(value * (1 + 1e-9) * 1e6) / 1e6
