"""Reads miso's mixes of jobs under MPS as runs whose speed is relative to the same mix without a limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lab.data.missing_data import DataMissing
from lab.interference.traits import Traits
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation

LEVELS = (100, 50, 14)  # SM% limits of the rows
IDLE = (0.8889, 1.0, 0.8889)  # speeds on MIG slices of what fills a mix up to seven; it is no job
DIGITS = 4


def read_miso(data: Path) -> tuple[list[SlowdownObservation], Traits]:
    """Returns slowdowns at 50 and 14 % against 100 % of each job in each distinct mix, and the jobs' speeds on slices.

    A job has no name: its speeds on MIG slices, alone there, tell it apart. Order within a mix does not count."""
    folder = data / "miso"
    if not (folder / "input_data.npy").exists() or not (folder / "target_data.npy").exists():
        raise DataMissing(f"{folder} lacks input_data.npy or target_data.npy")
    shared, alone = np.load(folder / "input_data.npy"), np.load(folder / "target_data.npy")
    mixes = {
        tuple(sorted((tuple(a.round(DIGITS)), tuple(s.round(DIGITS))) for a, s in zip(slices.T, speeds.T, strict=True)))
        for slices, speeds in zip(alone, shared, strict=True)
    }
    observations = []
    numbers: dict[str, tuple[float, ...]] = {}
    for mix in sorted(mixes):
        jobs = [(_name(slices), speeds) for slices, speeds in mix if slices != IDLE]
        numbers |= {_name(slices): slices for slices, _ in mix if slices != IDLE}
        for at, (job, speeds) in enumerate(jobs):
            others = tuple(sorted(other for place, (other, _) in enumerate(jobs) if place != at))
            for row in (1, 2):
                neighbours = tuple(Neighbour(other, LEVELS[row]) for other in others)
                run = SharedRun(job, LEVELS[row], neighbours, against=LEVELS[0])
                observations.append(SlowdownObservation(run, float(speeds[0] / speeds[row])))
    return observations, Traits(numbers)


def _name(slices: tuple[float, ...]) -> str:
    return "/".join(f"{each:g}" for each in slices)
