"""Solves ParvaGPU's scenarios with a proof: how few A100s, cut into MIG slices, keep every model's SLO and rate.

A slice runs 1..5 processes of a model under MPS, all with the same batch; its latency must be under
0.9 x SLO / 2 (half the SLO waits for the batch, a tenth is reserve). HiGHS proves the number of GPUs; the answer is
checked in exact fractions. Published answers: 2, 3 and 5 GPUs for scenarios S1..S3."""

from __future__ import annotations

import csv
import math
import time
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from lab.data.missing_data import DataMissing

SLICES = (1, 2, 3, 4, 7)
# The slots of an A100: a 4 fits into the left half only; a 3 there takes all of its memory, as a 4 would.
LEFT = ((4,), (3,), (2, 2), (2, 1, 1), (1, 1, 1, 1))
RIGHT = ((3,), (2, 1), (1, 1, 1))
LAYOUTS = ((7,), *(tuple(left + right) for left, right in product(LEFT, RIGHT)))


@dataclass(frozen=True, slots=True)
class Segment:
    """The best way to run a model on a kind of slice."""

    slice: int
    batch: int
    processes: int
    per_second: Fraction  # of all processes together


@dataclass(frozen=True, slots=True)
class SliceMeasurement:
    """A measurement of a model on a kind of slice."""

    slice: int
    batch: int
    processes: int
    per_second_each: Fraction
    latency_s: Fraction


@dataclass(frozen=True, slots=True)
class ModelDemand:
    """A model's SLO and rate in a scenario."""

    model: str
    slo_ms: Fraction
    per_second: Fraction


def read(data_dir: Path) -> tuple[dict[str, tuple[SliceMeasurement, ...]], list[tuple[ModelDemand, ...]]]:
    """Reads profiles by model, and the scenarios, from `data_dir` or its subfolder parvagpu."""
    folder = data_dir / "parvagpu" if (data_dir / "parvagpu").is_dir() else data_dir
    files = sorted((folder / "prof_data").glob("*.csv"))
    if not files:
        raise DataMissing(
            f"{folder / 'prof_data'} holds no profile; --data names a folder with prof_data/ and slo_*.csv"
        )
    profiles = {}
    for path in files:
        with path.open(newline="") as file:
            rows = [[Fraction(cell) for cell in row] for row in list(csv.reader(file))[1:]]
        profiles[path.stem] = tuple(
            SliceMeasurement(int(s), int(b), int(p), each, late) for s, b, p, each, late in rows
        )
    latencies = _table(folder / "slo_latency_ms.csv")
    rates = _table(folder / "slo_request_rate.csv")
    scenarios = [
        tuple(
            ModelDemand(model, Fraction(slo), Fraction(rate))
            for model, slo, rate in zip(profiles, slos, wanted, strict=True)
            if slo != "N/A"
        )
        for slos, wanted in zip(latencies, rates, strict=False)
    ]
    return profiles, scenarios


def _table(path: Path) -> list[list[str]]:
    return [line.strip().split(",") for line in path.read_text().splitlines() if line.strip()]


def segments(rows: tuple[SliceMeasurement, ...], slo_ms: Fraction) -> dict[int, Segment]:
    """Returns, by slice, the segment that carries most within the SLO."""
    best: dict[int, Segment] = {}
    for row in rows:
        if row.per_second_each <= 0 or not row.latency_s * 1000 < Fraction(9, 10) * slo_ms / 2:
            continue
        segment = Segment(row.slice, row.batch, row.processes, row.per_second_each * row.processes)
        if row.slice not in best or segment.per_second > best[row.slice].per_second:
            best[row.slice] = segment
    return best


@dataclass(frozen=True)
class SlicePlan:
    """The slices of each kind that each model gets, and how the GPUs are cut."""

    slices: dict[tuple[str, int], int]
    layouts: tuple[tuple[int, ...], ...]  # one for each GPU
    bound: int

    @property
    def is_proved(self) -> bool:
        return len(self.layouts) == self.bound


def solve(
    options: dict[str, dict[int, Segment]], demands: tuple[ModelDemand, ...], nodes: int = 100_000
) -> SlicePlan | None:
    """Finds the fewest GPUs; None if a model cannot keep its SLO on any slice, or nothing was found in time."""
    if any(not options[demand.model] for demand in demands):
        return None
    keys = [(demand.model, kind) for demand in demands for kind in options[demand.model]]
    rows = np.zeros((len(demands) + len(SLICES), len(keys) + len(LAYOUTS)))
    for row, demand in enumerate(demands):
        for column, (name, kind) in enumerate(keys):
            if name == demand.model:
                rows[row, column] = (
                    options[name][kind].per_second / demand.per_second
                )  # scaled: tolerances are absolute
    for row, size in enumerate(SLICES, start=len(demands)):
        rows[row, : len(keys)] = [-(kind == size) for _, kind in keys]
        rows[row, len(keys) :] = [layout.count(size) for layout in LAYOUTS]
    floor = np.array([1.0] * len(demands) + [0.0] * len(SLICES))
    found = milp(
        np.array([0.0] * len(keys) + [1.0] * len(LAYOUTS)),
        constraints=LinearConstraint(rows, floor, np.inf),
        integrality=np.ones(rows.shape[1]),
        bounds=Bounds(0, np.inf),
        options={"node_limit": nodes},
    )
    if found.x is None:
        return None
    counts = [round(value) for value in found.x]
    cuts = zip(counts[len(keys) :], LAYOUTS, strict=True)
    return SlicePlan(
        {key: count for key, count in zip(keys, counts, strict=False) if count},
        tuple(layout for count, layout in cuts for _ in range(count)),
        math.ceil(found.mip_dual_bound - 1e-6),
    )


def violations(
    options: dict[str, dict[int, Segment]], demands: tuple[ModelDemand, ...], answer: SlicePlan
) -> list[str]:
    """Returns what is wrong with an answer, by plain loops."""
    found = []
    for demand in demands:
        carried = Fraction(0)
        for kind, segment in options[demand.model].items():
            carried += segment.per_second * answer.slices.get((demand.model, kind), 0)
        if carried < demand.per_second:
            found.append(f"{demand.model} gets {float(carried):g} of {float(demand.per_second):g} requests a second")
    for kind in SLICES:
        used = sum(count for (_, k), count in answer.slices.items() if k == kind)
        there = sum(layout.count(kind) for layout in answer.layouts)
        if used > there:
            found.append(f"{used} slices of {kind} are used, {there} are cut")
    found += [f"an A100 cannot be cut into {layout}" for layout in answer.layouts if layout not in LAYOUTS]
    return found


def run(data_dir: Path | str) -> dict[str, Any]:
    """Solves every scenario: {"scenarios": [{"name", "gpus", "bound", "proved", "seconds"}, ...]}."""
    profiles, scenarios = read(Path(data_dir))
    rows = []
    for number, demands in enumerate(scenarios, start=1):
        began = time.perf_counter()
        options = {demand.model: segments(profiles[demand.model], demand.slo_ms) for demand in demands}
        answer = solve(options, demands)
        seconds = time.perf_counter() - began
        row: dict[str, Any] = {"name": f"S{number}", "models": len(demands), "seconds": round(seconds, 3)}
        if answer:
            row |= {"gpus": len(answer.layouts), "bound": answer.bound, "proved": answer.is_proved}
            row["violations"] = violations(options, demands, answer)
        rows.append(row)
    return {"scenarios": rows}
