"""Solves the small problem of llm-inferno with a proof: which accelerators serve which model servers at least cost.

Two readings: one accelerator type a server (published optimum 41857.75), and types mixed within a server (37929).
Rates are near 1e-5 requests a millisecond, under every solver's tolerance: each row is divided by its arrival rate
and taken to whole numbers, rounded up, so that CP-SAT solves a relaxation in integers; its answer is then checked in
exact fractions against the rates themselves, which makes it a proof."""

from __future__ import annotations

import csv
import json
import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ortools.sat.python import cp_model

from lab.data.missing_data import DataMissing

RATE_UNITS = 10**7  # of a server's arrival rate
CANDIDATES = "derived_candidates_small.csv"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to serve a server: replicas on an accelerator type."""

    server: str
    accelerator: str
    replicas: int  # that carry the whole load
    price: Fraction  # of a replica
    pool: str  # whose units it takes
    units: int  # of the pool, per replica
    rate: Fraction  # that a replica carries, as a share of the arrival rate

    def most(self, pools: dict[str, int]) -> int:
        return min(pools[self.pool] // self.units, math.ceil(1 / self.rate))


@dataclass(frozen=True)
class CandidatePools:
    """The candidates, and the units of each pool."""

    candidates: tuple[Candidate, ...]
    pools: dict[str, int]

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(sorted({candidate.server for candidate in self.candidates}))


Answer = dict[tuple[str, str], int]  # (server, accelerator) -> replicas


def read(data_dir: Path) -> CandidatePools:
    """Reads the fleet from its files, in `data_dir` or its subfolder inferno."""
    folder = data_dir / "inferno" if (data_dir / "inferno").is_dir() else data_dir
    if not (folder / CANDIDATES).is_file():
        raise DataMissing(f"{folder / CANDIDATES} is missing; --data names a folder with it and small/*.json")
    small = folder / "small"
    accelerators = {a["name"]: a for a in json.loads((small / "accelerator-data.json").read_text())["accelerators"]}
    pools = {c["type"]: int(c["count"]) for c in json.loads((small / "capacity-data.json").read_text())["count"]}
    candidates = []
    with (folder / CANDIDATES).open(newline="") as file:
        for _, server, name, replicas, cost, _, rate, arrivals in csv.reader(file):
            accelerator = accelerators[name]
            price = Fraction(cost) / int(replicas)
            apiece = price / Fraction(str(accelerator["cost"]))  # accelerators that a replica of this model spans
            units = round(apiece) * int(accelerator["multiplicity"])
            carried = Fraction(rate) / Fraction(arrivals)
            pool = accelerator["type"]
            candidates.append(Candidate(server, name, int(replicas), price, pool, units, carried))
    return CandidatePools(tuple(candidates), pools)


def cost(fleet: CandidatePools, answer: Answer) -> Fraction:
    return sum((c.price * answer.get((c.server, c.accelerator), 0) for c in fleet.candidates), Fraction(0))


def violations(fleet: CandidatePools, answer: Answer, mixed: bool) -> list[str]:
    """Returns what is wrong with an answer, in exact fractions."""
    found = []
    taken: Counter[str] = Counter()
    for server in fleet.servers:
        own = [c for c in fleet.candidates if c.server == server and answer.get((server, c.accelerator), 0) > 0]
        carried = sum((c.rate * answer[server, c.accelerator] for c in own), Fraction(0))
        if carried < 1:
            found.append(f"{server} gets {float(carried):.6f} of its rate")
        if not mixed and len(own) != 1:
            found.append(f"{server} runs on {len(own)} accelerator types; 1 is allowed")
        for candidate in own:
            taken[candidate.pool] += candidate.units * answer[server, candidate.accelerator]
    found += [f"{pool} gives {taken[pool]} of {count}" for pool, count in fleet.pools.items() if taken[pool] > count]
    return found


def solve(fleet: CandidatePools, mixed: bool, deterministic_work: float = 10.0) -> tuple[Answer, Fraction, Fraction]:
    """Returns the best answer, its cost, and a lower bound of every answer's cost."""
    model = cp_model.CpModel()
    grain = Fraction(1, math.lcm(*(c.price.denominator for c in fleet.candidates)))
    counts: dict[tuple[str, str], Any] = {}
    paid = []
    carried: dict[str, list[Any]] = {server: [] for server in fleet.servers}
    taken: dict[str, list[Any]] = {pool: [] for pool in fleet.pools}
    for candidate in fleet.candidates:
        key = (candidate.server, candidate.accelerator)
        if mixed:
            count = model.new_int_var(0, candidate.most(fleet.pools), "")
            # Rounded up: nothing that carries the rate in truth is refused here.
            carried[candidate.server].append(count * math.ceil(candidate.rate * RATE_UNITS))
            each = 1
        else:
            count = model.new_bool_var("")
            carried[candidate.server].append(count * RATE_UNITS)
            each = candidate.replicas
        counts[key] = count
        taken[candidate.pool].append(count * (candidate.units * each))
        paid.append(count * int(candidate.price * each / grain))
    for terms in carried.values():
        model.add(_total(terms) >= RATE_UNITS)
        if not mixed:
            model.add(_total(terms) <= RATE_UNITS)
    for pool, terms in taken.items():
        model.add(_total(terms) <= fleet.pools[pool])
    model.minimize(_total(paid))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = deterministic_work
    solver.parameters.cp_model_probing_level = 0  # costs more here than it saves
    solver.parameters.symmetry_level = 0
    status = solver.solve(model)
    bound = Fraction(math.ceil(solver.best_objective_bound - 1e-6)) * grain
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return {}, Fraction(0), bound
    replicas = {(c.server, c.accelerator): 1 if mixed else c.replicas for c in fleet.candidates}
    answer = {key: solver.value(count) * replicas[key] for key, count in counts.items() if solver.value(count)}
    return answer, cost(fleet, answer), bound


def _total(terms: Iterable[Any]) -> Any:
    return cp_model.LinearExpr.sum(list(terms))


def run(data_dir: Path | str) -> dict[str, Any]:
    """Solves both readings: {"oneType": {"cost", "bound", "proved", "seconds"}, "mixed": ...}."""
    fleet = read(Path(data_dir))
    rows: dict[str, Any] = {}
    for name, mixed in (("oneType", False), ("mixed", True)):
        began = time.perf_counter()
        answer, paid, bound = solve(fleet, mixed)
        seconds = time.perf_counter() - began
        wrong = violations(fleet, answer, mixed)
        rows[name] = {
            "cost": float(paid),
            "bound": float(bound),
            "proved": not wrong and paid == bound,
            "violations": wrong,
            "seconds": round(seconds, 3),
        }
    return rows
