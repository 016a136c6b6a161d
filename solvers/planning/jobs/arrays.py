"""The named tuples of arrays that the compiled loops of job placement read and write."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.pressures import Pressures

SEATS = 8  # jobs on one GPU at most, whatever the policy allows


class JobFleet(NamedTuple):
    """The room that services leave on GPUs, in the order of their names. Residents are services' instances."""

    kind: Ints  # number of the GPU's type
    node: Ints
    spare: Ints  # SM%
    memory_gib: Floats
    watts: Floats  # under the type's limit, everything busy
    clock: Floats  # highest clock / clock
    pressure: Pressures  # of the residents
    bears: Pressures  # what jobs may add of either, where shares are not priced
    more_w: Pressures  # watts that residents draw more on average, per pressure added
    seats: Ints  # jobs it may hold
    price: Floats  # of opening it for a job; 0 where that is free
    start: Ints  # [GPUs + 1] into residents
    sensitivity: Pressures  # of a resident
    beside: Pressures  # pressure of its fellow residents
    most: Floats  # the slow-down under which it still keeps its SLO
    share_pressure: float  # 0 unless shares are priced


class Jobs(NamedTuple):
    """Jobs by name, and their profiles by number."""

    profile: Ints  # [job, type], -1 where it has none
    need: Floats  # [job] units a second by which its deadline is met
    low: Ints  # [profile]
    high: Ints
    pace: Floats  # [profile, SM%] alone, at the highest clock
    pressure: Pressures  # [profile, SM%]
    power_w: Floats
    memory_gib: Floats
    cpu_cores: Floats
    host_memory_gib: Floats
    sensitivity: Pressures
    clock_exponent: Floats
    power_exponent: Floats
    most_pace: Floats  # [profile, SM%] the best with at most that many SM%
    least_pressure: Pressures  # [profile] of either, over its whole range


class JobBoard(NamedTuple):
    """The place and the SM% of each job, and what is left besides."""

    taken: Ints  # [GPU] how many
    job: Ints  # [GPU, seat]
    sm: Ints
    home: Ints  # [job] GPU, -1 where it runs nowhere
    watts: Floats  # [GPU] that its jobs draw, and its residents draw more
    seconds: Floats  # [GPU] sum of 1 / units per second
    cpu_cores: Floats  # [node] left
    host_memory_gib: Floats
    free_w: Floats  # [1] of the fleet's budget
    is_open: Ints  # [GPU] whether jobs may use it: free, or opened


class JobTrial(NamedTuple):
    """A set of jobs tried on one GPU."""

    job: Ints
    sm: Ints
    best: Ints
    about: Floats  # watts, seconds
    free_w: Floats  # [1] watts of the fleet that the set may draw


def trial() -> JobTrial:
    return JobTrial(
        np.zeros(SEATS, np.int64), np.zeros(SEATS, np.int64), np.zeros(SEATS, np.int64), np.zeros(2), np.zeros(1)
    )


def board(fleet: JobFleet, jobs: int, cpu_cores: Floats, host_memory_gib: Floats, free_w: float) -> JobBoard:
    """Returns a board without jobs."""
    gpus = len(fleet.kind)
    return JobBoard(
        np.zeros(gpus, np.int64), np.zeros((gpus, SEATS), np.int64), np.zeros((gpus, SEATS), np.int64),
        np.full(jobs, -1, np.int64), np.zeros(gpus), np.zeros(gpus), cpu_cores, host_memory_gib, np.array([free_w]),
        (fleet.price == 0.0).astype(np.int64),
    )  # fmt: skip


_I, _F, _M = np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 1))
_N, _C, _D = np.zeros((1, 1), np.int64), np.zeros(1, np.complex128), np.zeros((1, 1), np.complex128)
_type: Any = numba.typeof
FLEET: Any = _type(JobFleet(_I, _I, _I, _F, _F, _F, _C, _C, _C, _I, _F, _I, _C, _C, _F, 0.0))
JOBS: Any = _type(Jobs(_N, _F, _I, _I, _M, _D, _M, _F, _F, _F, _C, _F, _F, _M, _C))
BOARD: Any = _type(JobBoard(_I, _N, _N, _I, _F, _F, _F, _F, _F, _I))
TRIAL: Any = _type(trial())
