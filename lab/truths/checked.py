"""Checks the physics of simulated GPUs against published figures, and plans made from measured profiles against it.

Usage: .venv/bin/python -m lab.truths.checked calibration --data DIR
       .venv/bin/python -m lab.truths.checked plans FILE [--draws N] [--first K] [--seconds S] [--work N]
       .venv/bin/python -m lab.truths.checked operated FILE [--draws N] [--first K] [--hours H] [--seed N]

`plans` measures profiles of each draw as a profiler would, plans once, and carries the plan out on the draw without any
correction. Three planners know more: `complete` has all times and many groups of neighbours; `judged` is the cheapest
right plan of several that believe in less and less interference, right meaning that no batch takes longer than
predicted while all neighbours are busy; `served` is the cheapest of them that keeps every SLO when it is carried out.

`operated` runs the fleet under a moving load as `gpuwright simulate` does, once with measured profiles and once with
complete ones, and learning on. It reports the services that miss their SLO over the run, and what the fleets cost.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.control.formulate.problem import build_problem
from app.manifests.model import Kind
from app.manifests.offline import DeclaredFiles
from lab.truths.trainings import draw_training
from simulation import world as worlds
from simulation.clock import Clock
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.plan_execution import carry_out
from simulation.limits import ProfilesName
from simulation.measure.loads import make_load
from simulation.measure.run import SimulationOrder, simulate
from simulation.own_database import own_database
from simulation.profiling import COMPLETE, SIXTEEN, profile_world
from simulation.truth.family import draw_gpu, generator
from simulation.truth.load import times
from simulation.truth.neighbours import ActiveLoad, paces
from simulation.truth.physics import Physics
from simulation.truths import TruthOrder
from solvers.planning.plan import Plan
from solvers.planning.solve import SolveBudget, solve

DRAWS = 20  # seeds that are reported
GAVEL = "gavel/simulation_throughputs.json"
MISO = "miso/input_data.npy"
LIGHT = (0.6, 0.98)  # of a step's time, of trainings that leave a GPU mostly idle, as those of miso seem to do
LEVELS = (1.0, 0.5, 1 / 7)
V100, A100 = ("v100", 40.0, 300.0, 1530.0), ("a100", 55.0, 400.0, 1410.0)
SETTLE_SECONDS = 30
RIGHT = 1.001  # times the predicted time is still as predicted
INTERFERENCE_SHARES = (1.0, 0.5, 0.0)
OPERATED: tuple[ProfilesName, ...] = ("measured", "complete")
Floats = NDArray[np.float64]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    calibration = parts.add_parser("calibration")
    calibration.add_argument("--data", type=Path, required=True)
    plans = parts.add_parser("plans")
    plans.add_argument("--seconds", type=int, default=180)
    plans.add_argument("--work", type=int, default=24)
    plans.add_argument("--quantile", type=float, help="profileQuantile of the policy")
    operated = parts.add_parser("operated")
    operated.add_argument("--hours", type=float, default=1.0)
    operated.add_argument("--seed", type=int, default=1, help="of load and searches")
    for part in (plans, operated):
        part.add_argument("file", type=Path)
        part.add_argument("--draws", type=int, default=DRAWS)
        part.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    if args.part == "calibration":
        return show_calibration(args.data)
    draws = range(args.first, args.first + args.draws)
    if args.part == "plans":
        rows = plan_draws(args.file, draws, args.seconds, args.work, args.quantile)
    else:
        rows = operate_draws(args.file, draws, args.hours, args.seed)
    for row in rows:
        print(json.dumps(row), flush=True)
    return 0


def show_calibration(data: Path) -> int:
    """Prints quantiles of published slowdowns, and the same of the draws: their median, lowest and highest."""
    print(f"{'':34} {'quantile':>8} {'published':>9} {'median':>7} {'lowest':>7} {'highest':>7}")
    published = {"pairs on a V100, slowdown": gavel_slowdowns(data / GAVEL)} | miso_ratios(data / MISO)
    made = [made_slowdowns(seed) for seed in range(DRAWS)]
    for name, quantiles in made[0].items():
        for quantile in quantiles:
            drawn = [one[name][quantile] for one in made]
            fact = f"{np.quantile(published[name], quantile):9.2f}" if name in published else f"{'-':>9}"
            print(f"{name:34} {quantile:8g} {fact} {np.median(drawn):7.2f} {min(drawn):7.2f} {max(drawn):7.2f}")
    return 0


def gavel_slowdowns(path: Path) -> Floats:
    """Reads how many times as long a step takes in a pair on one V100."""
    table = json.loads(path.read_text())["v100"]
    single = {name: row for name, row in table.items() if name.endswith(" 1)") and row["null"]}
    return np.array(
        [
            row["null"] / row[other][0]
            for row in single.values()
            for other in single
            if other in row and min(row[other]) > 0
        ]
    )


def miso_ratios(path: Path) -> dict[str, Floats]:
    """Reads speeds under a limit over those without, of distinct mixes of seven different jobs."""
    mixes = {tuple(sorted(map(tuple, mix.T.round(4)))): mix for mix in np.load(path)}
    full = np.array([mix for jobs, mix in mixes.items() if len(set(jobs)) == mix.shape[1]])
    return {
        "seven at 50 %, speed over 100 %": (full[:, 1] / full[:, 0]).ravel(),
        "seven at 14 %, speed over 100 %": (full[:, 2] / full[:, 0]).ravel(),
    }


def made_slowdowns(seed: int) -> dict[str, dict[float, float]]:
    """Returns the same figures of a draw, and what no table has: pairs within their own SMs."""
    v100, a100 = draw_gpu(seed, *V100), draw_gpu(seed, *A100)
    jobs = [draw_training(seed, f"training {number}", v100) for number in range(16)]
    free: list[float] = []
    apart: list[float] = []
    for pair in combinations_with_replacement(jobs, 2):
        free += [pace.slow for pace in paces(v100, [ActiveLoad(job, 1, 1.0) for job in pair], 1.0)]
        apart += [pace.slow for pace in paces(v100, [ActiveLoad(job, 1, 0.5) for job in pair], 1.0)]
    light = [draw_training(seed, f"light {number}", a100, LIGHT) for number in range(20)]
    random = generator(seed, "mixes")
    speeds: list[list[Floats]] = [[], [], []]
    for _ in range(60):
        mix = [light[number] for number in random.choice(len(light), 7, replace=False)]
        for place, share in enumerate(LEVELS):
            slow = [pace.slow for pace in paces(a100, [ActiveLoad(job, 1, share) for job in mix], 1.0)]
            alone = [times(job, a100, 1, share).alone for job in mix]
            speeds[place].append(1 / (np.array(alone) * slow))
    whole, half, seventh = (np.concatenate(level) for level in speeds)
    found = {
        "pairs on a V100, slowdown": np.array(free),
        "seven at 50 %, speed over 100 %": half / whole,
        "seven at 14 %, speed over 100 %": seventh / whole,
        "pairs at 50 % each, slowdown": np.array(apart),
    }
    return {name: {q: float(np.quantile(values, q)) for q in (0.1, 0.5, 0.9)} for name, values in found.items()}


def plan_draws(
    file: Path, seeds: Sequence[int], seconds: int, work: int, quantile: float | None = None
) -> Iterator[dict[str, Any]]:
    """Yields a row for each draw, and their median and worst."""
    world = worlds.read_files(file)
    rows = []
    for seed in seeds:
        physics = Physics(seed)
        complete = profile_world(world, physics, COMPLETE)
        knowing = [tried(lessened(complete, share), physics, seconds, work) for share in INTERFERENCE_SHARES]
        measured = tried(counting_on(profile_world(world, physics, SIXTEEN), quantile), physics, seconds, work)
        tries = [one for one in [*knowing, measured] if not one["missed"] and not one["unserved"]]
        cheapest = {
            "complete": knowing[0]["cost"],
            "judged": min((one["cost"] for one in tries if one["wrong"] <= RIGHT), default=None),
            "served": min((one["cost"] for one in tries), default=None),
        }
        rows.append({name: measured["cost"] / cost for name, cost in cheapest.items() if cost})
        yield {"draw": seed, "measured": measured, "knowing": cheapest, "ratio": rows[-1], "tries": knowing}
    for name in ("complete", "judged", "served"):
        found = [row[name] for row in rows if name in row]
        if found:
            yield {"against": name, "draws": len(found), "median": float(np.median(found)), "worst": max(found)}


def operate_draws(file: Path, seeds: Sequence[int], hours: float, load_seed: int) -> Iterator[dict[str, Any]]:
    """Yields a row for each draw, and the median and worst cost against that of complete profiles."""
    world = worlds.read_files(file)
    ratios = []
    for seed in seeds:
        measured, complete = (
            operated(world, TruthOrder("made", seed, profiles=profiles), hours, load_seed) for profiles in OPERATED
        )
        ratios.append(measured["held"] / complete["held"])
        yield {"draw": seed, "measured": measured, "complete": complete, "ratio": round(ratios[-1], 4)}
    yield {"draws": len(ratios), "median": float(np.median(ratios)), "worst": max(ratios)}


def operated(world: DeclaredFiles, truth: TruthOrder, hours: float, load_seed: int) -> dict[str, Any]:
    """Returns what a fleet cost under a moving load, and by how many points services missed their SLO."""
    services = build_problem(world).services
    shapes = make_load("moving", services, hours, load_seed)
    order = SimulationOrder(world, shapes, hours, load_seed, truth=truth, is_compared=False)
    with own_database("gpuwright-truths-", lambda line: None) as url:
        found = simulate(url, order).figures
    missed = {}
    for name, shares in found["attainment"].items():
        beyond = 100 * shares["share"] - services[name].percentile
        if beyond < 0:
            missed[name] = round(beyond, 2)
    return {"held": found["heldPerHour"], "missed": missed, "shed": found["shedRequests"], "changes": found["changes"]}


def counting_on(world: DeclaredFiles, quantile: float | None) -> DeclaredFiles:
    """Returns the world whose policy plans with this quantile of uncertain values."""
    if quantile is None:
        return world
    return DeclaredFiles(
        {
            key: replace(one, spec={**one.spec, "profileQuantile": quantile}) if key.kind is Kind.POLICY else one
            for key, one in world.manifests.items()
        }
    )


def lessened(world: DeclaredFiles, share: float) -> DeclaredFiles:
    """Returns the world whose planner believes in this share of the interference."""
    return DeclaredFiles(
        {
            key: replace(one, spec={**one.spec, "sensitivity": _scale(one.spec["sensitivity"], share)})
            if key.kind is Kind.PROFILE
            else one
            for key, one in world.manifests.items()
        }
    )


def _scale(sensitivity: Any, share: float) -> Any:
    """Returns a part of a sensitivity, or of both of a pair."""
    if isinstance(sensitivity, dict):
        return {part: _scale(value, share) for part, value in sensitivity.items()}
    return float(sensitivity) * share


def tried(world: DeclaredFiles, physics: Physics, seconds: int, work: int) -> dict[str, Any]:
    """Plans once, and returns the cost and which services miss their SLO on the physics, by how many points."""
    truth = worlds.truth_of(world, physics=physics)
    problem = build_problem(world)  # of uncertain values by the policy's quantile
    plan = solve(problem, SolveBudget(seconds=None, work=work))
    clock = Clock()
    fleet = SimulatedFleet(truth, clock, seed=physics.seed)
    carry_out(fleet, plan)
    until = SETTLE_SECONDS + max((starts for starts in truth.start_seconds.values()), default=0.0)
    before: dict[str, tuple[int, int]] = {}
    while clock.seconds < until + seconds:
        clock.advance(1.0)
        fleet.tick()
        if not before and clock.seconds >= until:
            before = {name: (total.within, total.requests) for name, total in fleet.services.items()}
    missed = {}
    for name, (within, requests) in before.items():
        total, service = fleet.services[name], problem.services[name]
        attained = 100 * (total.within - within) / max(1, total.requests - requests)
        if attained < service.percentile - 0.1:  # of requests in flight at the ends
            missed[name] = round(attained - service.percentile, 2)
    cost = plan.certificate.cost.resource if plan.certificate else 0.0
    return {"cost": round(cost, 3), "missed": missed, "unserved": len(plan.unserved), "wrong": worst_error(plan, truth)}


def worst_error(plan: Plan, truth: Any) -> float:
    """Returns the largest real time over the predicted, while all neighbours are busy."""
    from simulation.fleet_truth import SimulatedResident

    problem = truth.problem
    found = [1.0]
    for one in plan.instances:
        kind = problem.nodes[one.node].gpu_type
        residents = [
            SimulatedResident(
                problem.profiles[problem.services[other.service].model, other.variant, kind].demand,
                other.sm_percent,
                (problem.services[other.service].model, other.variant, kind),
                other.batch,
            )
            for other in plan.instances
            if other.place == one.place and other is not one
        ]
        key = (problem.services[one.service].model, one.variant, kind)
        found.append(truth.exec_ms(key, one.batch, one.sm_percent, residents, one.clock_mhz) / one.exec_ms)
    return round(max(found), 3)


if __name__ == "__main__":
    sys.exit(main())
