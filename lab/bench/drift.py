"""Measures how soon SLOs hold again after GPUs have turned slower, by regions of the curve and by one factor.

A real planner plans a fleet in virtual time. After forty minutes its GPUs turn slower than their profiles: in the
range of SM% that holds the smaller half of its copies, or everywhere.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cli.arguments import positive, whole
from cli.bench.plan_arguments import Say, add_family_argument
from cli.exits import Failed

if TYPE_CHECKING:
    from lab.bench.drifting import TruthFactor
    from simulation.run import Simulation
    from solvers.planning.problem import Problem, ProfileKey

SHOWN = (
    "seed", "slower", "law", "slo_again_seconds", "missed_minutes", "late", "held_before", "held_mean", "held_last",
    "steps", "turns", "changes", "changes_last", "error_running_percent", "error_unchanged_percent",
)  # fmt: skip


GPU_TYPES = ("a100-pcie-40gb", "l4-24gb", "t4-16gb", "a10-24gb", "a30-24gb")
GPUS_PER_NODE = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="G", type=whole(1), default=8, help="default 8")
    parser.add_argument("--services", metavar="N", type=whole(1), default=6, help="default 6")
    parser.add_argument("--seeds", metavar="K", type=whole(1), default=3, help="fleets; default 3")
    parser.add_argument("--slower", metavar="F", type=positive, default=1.2, help="times as long; default 1.2")
    parser.add_argument("--minutes", metavar="M", type=whole(1), default=90, help="after the change; default 90")
    parser.add_argument("--change", choices=("range", "all"), help="what turns slower; default both in turn")
    parser.add_argument("--before", metavar="M", type=whole(1), default=40, help="minutes before it; default 40")
    parser.add_argument("--load", metavar="L", type=positive, default=0.5, help="of the fleet; default 0.5")
    parser.add_argument(
        "--gpu-type", metavar="T", choices=GPU_TYPES, default=GPU_TYPES[0], help=f"of all GPUs; default {GPU_TYPES[0]}"
    )
    add_family_argument(parser)


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each fleet, kind of change and law of correction."""
    import msgspec

    from app.control.observe.drift.correct import update_correction
    from app.manifests.offline import Input, load
    from benchmarks.families import family
    from benchmarks.manifests import manifests
    from lab.bench.drifting import DriftOrder, run_drift
    from lab.bench.scalar_correction import ScalarCorrection
    from simulation.own_database import own_database

    rows = []
    for seed in range(args.seeds):
        problem = narrow_to_type(
            family(args.family, args.gpus, args.services, seed), args.gpu_type, args.gpus, args.load
        )
        world = load([Input("family", msgspec.json.encode(manifests(problem)), "json")])
        for kind, choose in (("range", one_range(args.slower)), ("all", all_at_once(args.slower))):
            if args.change not in (None, kind):
                continue
            order = DriftOrder(world, choose, 60.0 * args.before, 60.0 * args.minutes, seed)
            for name, law in (("one factor", ScalarCorrection()), ("regions", update_correction)):
                with own_database("gpuwright-drift-", say) as url:
                    found = run_drift(url, order, law)
                rows.append({"seed": seed, "slower": kind, "law": name, **found})
                say(
                    " ".join(
                        f"{key} {rows[-1][key]:.4g}" if isinstance(rows[-1][key], float) else str(rows[-1][key])
                        for key in SHOWN
                    )
                )
    return {"rows": rows}


def narrow_to_type(problem: Problem, gpu_type: str, gpus: int, load: float) -> Problem:
    """Returns the problem on GPUs of one type: no copy can escape to others when they turn slower."""
    from benchmarks.hardware import FLEET
    from benchmarks.load import scale_to_load
    from benchmarks.models import round_figure
    from solvers.planning.problem import Node, gpu_indexes

    price = next(entry.price_per_hour for entry in FLEET if entry.gpu_type.name == gpu_type)
    counts = [min(GPUS_PER_NODE, gpus - first) for first in range(0, gpus, GPUS_PER_NODE)]
    nodes = [
        Node(f"node-{number}", gpu_type, gpu_indexes(count), 64.0, 512.0, price) for number, count in enumerate(counts)
    ]
    problem = replace(problem, nodes={node.name: node for node in nodes})
    scale = scale_to_load(problem, load).scale
    rates = {name: round_figure(service.rate_per_second * scale) for name, service in problem.services.items()}
    return problem.change_rates(rates)


def all_at_once(factor: float) -> Callable[[Simulation], TruthFactor]:
    """Returns what slows the GPU type with the most copies, whatever their shares."""

    def choose(fleet: Simulation) -> TruthFactor:
        gpu_type = most_used_type(fleet)
        return lambda key, sm_percent: factor if key[2] == gpu_type else 1.0

    return choose


def one_range(factor: float) -> Callable[[Simulation], TruthFactor]:
    """Returns what slows that GPU type for copies with no more SMs than their median."""

    def choose(fleet: Simulation) -> TruthFactor:
        gpu_type = most_used_type(fleet)
        shares = sorted(share for key, share in running_shares(fleet) if key[2] == gpu_type)
        middle = shares[(len(shares) - 1) // 2]
        return lambda key, sm_percent: factor if key[2] == gpu_type and sm_percent <= middle else 1.0

    return choose


def most_used_type(fleet: Simulation) -> str:
    """Returns the GPU type with the most copies, by name where two have as many."""
    counts = Counter(key[2] for key, _ in running_shares(fleet))
    return min(counts, key=lambda name: (-counts[name], name))


def running_shares(fleet: Simulation) -> list[tuple[ProfileKey, float]]:
    """Returns the profile and the share of SMs of every copy that serves; refuses a fleet in which none does."""
    found = [(node.key(copy), copy.wanted.sm_percent) for node in fleet.fleet.nodes.values() for copy in node.serving()]
    if not found:
        raise Failed("nothing serves when GPUs turn slower; give more --gpus, another --load or more minutes --before")
    return found
