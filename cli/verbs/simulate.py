"""`gpuwright simulate`: what a fleet costs and how it serves while the real planner runs it, in virtual time."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from app.manifests.model import Kind
from cli import declared, exits
from cli.arguments import add_file_arguments, completes, part, positive, whole
from cli.currency import head_amounts
from cli.exits import Failed
from cli.load_file import RATES_COLUMNS, read_curves, read_simulated_rates, read_trace, refuse_language_models
from cli.output import OutputTable, number, say
from cli.planner_argument import add_any_planner_argument
from cli.quiet import end_by_signals, quiet_log, quiet_stdout
from cli.talk.contexts import reason
from cli.truth import add_profiles_argument, add_truth_arguments, truth_order
from cli.views.charts import refuse_without_matplotlib
from cli.views.storms import show_storms
from simulation.limits import (
    LEAST_GAP_CV,
    LEAST_HOURS,
    LEAST_RECLAIM_MINUTES,
    LEAST_STORM_MINUTES,
    LOADS,
    MOST_GAP_CV,
    MOST_HOURS,
    POISSON_CV,
    STORM_SECONDS,
    STORM_SHARE,
    WARM_UP_MINUTES,
    WORK,
)

if TYPE_CHECKING:
    from app.manifests.offline import DeclaredFiles
    from simulation.measure.run import SimulationReport
    from simulation.serving.arrivals import PlayedRequests
    from simulation.shapes import Shape
    from simulation.truths import TruthOrder

COSTS = {
    "held": "held",
    "planned": "planned",
    "fresh": "fresh plan",
    "bound": "bound",
    "freshInHindsight": "fresh plan in hindsight",
    "boundInHindsight": "bound in hindsight",
}
PEERS = {"staticPeak": "static plan for the peak", "hpa80": "autoscaling at 80 %"}
EPILOG = f"""\
The planner, the fast lane, rollouts and the agents' decisions are the real ones, on a Postgres of the run's own; GPUs,
copies and requests are simulated. Every mode counts as auto. Figures count from minute 5 on; what the fleet could cost
is searched at minutes 5, 15, 25 and so on. docs/simulate.md explains each figure.

Searches are bounded by --work, never by seconds: the same input, seed and work give the same JSON on any machine, but
for `seconds` and `requestsPerSecondPerCore`. --work bounds each search of a cycle (default {WORK}); a search for a plan
from scratch takes 37 times as much, in processes of their own.

Examples:
  gpuwright simulate -f examples/fleet.yaml
  gpuwright simulate -f fleet/ --load wave --hours 24 --seed 3 --json
  gpuwright simulate -f fleet/ --load steady --gap-cv 4 --hours 3
  gpuwright simulate -f fleet/ --rates yesterday.csv --hours 6 --out simulated/
  gpuwright simulate -f fleet/ --requests trace.csv --no-comparison
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser)
    load = parser.add_mutually_exclusive_group()
    completes(load.add_argument("--rates", metavar="FILE.csv", help=f"the load as CSV with {RATES_COLUMNS}"), "files")
    played = (
        "the load as CSV, a row for each request, which are played one by one: seconds,service, and for language models"
        " inputTokens,outputTokens"
    )
    completes(load.add_argument("--requests", metavar="FILE.csv", help=played), "files")
    load.add_argument("--load", choices=LOADS, default="moving", help="the load of all services; default moving")
    bursts = (
        "coefficient of variation of the gaps between a service's requests: 1 is Poisson, the default; above, bursts"
    )
    parser.add_argument("--gap-cv", metavar="CV", type=positive, help=bursts)
    hours = f"of virtual time, {LEAST_HOURS:g} to {MOST_HOURS}; default 1"
    parser.add_argument("--hours", metavar="H", type=positive, default=1.0, help=hours)
    parser.add_argument("--seed", metavar="N", type=whole(0), default=0, help="of load and searches; default 0")
    parser.add_argument("--work", metavar="N", type=whole(1), default=WORK, help=f"of each search; default {WORK}")
    alone = "only what the run itself cost: no fresh plans, bounds and peers, whose searches take most of the time"
    parser.add_argument("--no-comparison", action="store_true", help=alone)
    reclaim = "every so many minutes a spot node, drawn by the seed, is reclaimed with two minutes' notice"
    parser.add_argument(
        "--reclaim-every", metavar="MINUTES", type=positive, help=f"{reclaim}; a declared one is back after ten"
    )
    _add_storm_arguments(parser)
    add_any_planner_argument(parser)
    add_truth_arguments(parser)
    add_profiles_argument(parser)
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object on stdout")
    out = "folder for the figures as JSON, the costs over time as CSV, and their plot"
    completes(parser.add_argument("--out", metavar="DIR", help=out), "files")


def _add_storm_arguments(parser: argparse.ArgumentParser) -> None:
    storms = "every so many minutes a storm takes a share of one place's spot nodes, and its pools refuse new ones"
    parser.add_argument("--storm-every", metavar="MINUTES", type=positive, help=f"{storms}; it lasts ten minutes")
    taken = "share of the spot nodes of a GPU type in a region that a storm takes; default a third"
    parser.add_argument("--storm-share", metavar="SHARE", type=part, help=taken)


def run(args: argparse.Namespace) -> int:
    if not LEAST_HOURS <= args.hours <= MOST_HOURS:
        allowed = f"{LEAST_HOURS:g} to {MOST_HOURS}; figures count from minute {WARM_UP_MINUTES} on"
        raise Failed(f"--hours {args.hours:g} is not allowed: {allowed}")
    _check_gaps(args)
    truth = truth_order(args)
    if args.out and args.no_comparison:
        raise Failed("--out needs the costs that --no-comparison leaves out; give one of the two")
    world = _world(args)
    if truth.name != "planner":
        refuse_language_models(world, f"--truth {truth.name}")
    shapes, requests = _load(args, world)
    out = None if args.out is None else _folder(args.out)
    found = _simulate(args, truth, world, shapes, requests)
    if args.json:
        print(json.dumps(found.figures))
    else:
        _show(found.figures, _read_promised(world), world.currency)
        if "storms" in found.figures:
            show_storms(found.figures["storms"], world)
    for name, shares in found.figures["attainment"].items():
        if not shares["share"]:
            say(f"{name} was never served; `gpuwright solve` with the same files says why")
    if out:
        _write(out, found, world.currency, f"{args.rates or args.requests or args.load}, seed {args.seed}")
    return exits.OK


def _world(args: argparse.Namespace) -> DeclaredFiles:
    world = declared.world(args)
    if not world.of(Kind.NODE):
        raise Failed("no Node is declared in the files: there is nothing to simulate on")
    _check_storms(args, world)
    if args.reclaim_every is not None:
        _check_reclaims(args.reclaim_every, world)
    return world


def _simulate(
    args: argparse.Namespace,
    truth: TruthOrder,
    world: DeclaredFiles,
    shapes: Mapping[str, Shape],
    requests: Mapping[str, PlayedRequests] | None,
) -> SimulationReport:
    from app.postgres.faults import PostgresError
    from solvers.compiled import call_before_compiling

    call_before_compiling(lambda: say("compiling the planner's loops, this once: about a minute"))
    from simulation.measure.run import SimulationOrder, simulate
    from simulation.own_database import own_database
    from simulation.storms import StormOrder

    storms = StormOrder(60 * args.storm_every, args.storm_share or STORM_SHARE) if args.storm_every else None
    every = args.reclaim_every and 60 * args.reclaim_every
    order = SimulationOrder(
        world, shapes, args.hours, args.seed, args.work, reclaim_every_seconds=every, storms=storms, truth=truth,
        is_compared=not args.no_comparison, planner=args.planner or "", requests=requests,
        gap_cv=POISSON_CV if args.gap_cv is None else args.gap_cv,
    )  # fmt: skip
    try:
        with quiet_log(), quiet_stdout(), end_by_signals(), own_database("gpuwright-simulate-", say) as url:
            return simulate(url, order, say)
    except (PostgresError, OSError) as error:
        raise Failed(str(error), exits.INTERNAL) from error


def _check_gaps(args: argparse.Namespace) -> None:
    if args.gap_cv is None:
        return
    if args.requests:
        raise Failed("--gap-cv needs requests that are drawn, and --requests plays each at its own time; give one")
    if not LEAST_GAP_CV <= args.gap_cv <= MOST_GAP_CV:
        raise Failed(f"--gap-cv {args.gap_cv:g} is not allowed: {LEAST_GAP_CV:g} to {MOST_GAP_CV:g}")


def _check_reclaims(minutes: float, world: DeclaredFiles) -> None:
    if minutes < LEAST_RECLAIM_MINUTES:
        raise Failed(f"--reclaim-every {minutes:g} is too often: at least {LEAST_RECLAIM_MINUTES} minute")
    if not any(manifest.spec.get("purchase") == "spot" for manifest in world.of(Kind.NODE)):
        raise Failed("--reclaim-every needs a Node with purchase spot, and the files declare none")


def _check_storms(args: argparse.Namespace, world: DeclaredFiles) -> None:
    if args.storm_every is None:
        if args.storm_share is not None:
            raise Failed("--storm-share needs --storm-every, which says how often storms come")
        return
    if args.reclaim_every is not None:
        raise Failed("--storm-every and --reclaim-every both take spot nodes; give one")
    if args.storm_every < LEAST_STORM_MINUTES:
        raise Failed(f"--storm-every {args.storm_every:g} is too often: at least {LEAST_STORM_MINUTES} minutes")
    if 60 * args.storm_every + STORM_SECONDS > 3600 * args.hours:
        ends = f"the first storm ends after {(args.storm_every + STORM_SECONDS / 60) / 60:.3g} hours"
        raise Failed(f"--hours {args.hours:g} is too short for --storm-every {args.storm_every:g}: {ends}")
    if not any(item.spec.get("purchase") == "spot" for kind in (Kind.NODE, Kind.POOL) for item in world.of(kind)):
        raise Failed("--storm-every needs a Node or a Pool with purchase spot, and the files declare none")


def _load(
    args: argparse.Namespace, world: DeclaredFiles
) -> tuple[Mapping[str, Shape], Mapping[str, PlayedRequests] | None]:
    """Returns the load of every service, by name or from a file, and its requests if that is a trace."""
    from simulation.measure import rates, requests
    from simulation.measure.loads import make_load

    declared_rates = read_simulated_rates(world)
    if args.requests:
        trace = read_trace(args.requests, declared_rates)
        _check_times(trace, args)
        return requests.make_shapes(trace, declared_rates), trace
    if args.rates:
        return rates.make_shapes(read_curves(args.rates, declared_rates), declared_rates), None
    return make_load(args.load, declared_rates, args.hours, args.seed), None


def _check_times(trace: Mapping[str, PlayedRequests], args: argparse.Namespace) -> None:
    """Says how many requests are beyond the simulated hours; Failed if all are."""
    requests = sum(len(found.times) for found in trace.values())
    beyond = sum(int((found.times >= 3600 * args.hours).sum()) for found in trace.values())
    if beyond == requests:
        raise Failed(
            f"no request of {args.requests} is within --hours {args.hours:g}: its seconds count from the start"
        )
    if beyond:
        say(f"{beyond:,} of {requests:,} requests are left out: they are beyond --hours {args.hours:g}")


def _folder(name: str) -> Path:
    """Makes the folder now, and writes to it, so that nothing is simulated in vain."""
    refuse_without_matplotlib("--out")
    if not name:
        raise Failed("--out needs the name of a folder")
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Failed(f"cannot write to the folder {name}: {reason(error)}") from None
    return folder


def _write(folder: Path, found: SimulationReport, currency: str, title: str) -> None:
    from cli.views.cost_chart import draw_costs, write_costs

    try:
        (folder / "simulation.json").write_text(json.dumps(found.figures, indent=2) + "\n")
        write_costs(found.samples, folder / "costs.csv")
        draw_costs(found.samples, found.figures, title, currency, folder / "costs.svg")
    except OSError as error:
        raise Failed(f"cannot write to {folder}: {reason(error)}", exits.INTERNAL) from None
    say(f"written to {folder}: simulation.json, costs.csv, costs.svg")


def _read_promised(world: DeclaredFiles) -> dict[str, float]:
    """Returns the percentile of each service's SLO."""
    slos: dict[str, Any] = {f"{item.tenant}/{item.name}": item.spec["slo"] for item in world.of(Kind.SERVICE)}
    return {name: float(slo["percentile"]) for name, slo in slos.items()}


def _show(figures: Mapping[str, Any], promised: Mapping[str, float], currency: str) -> None:
    """Prints the figures for people: services, costs beside what they could have been, and the rest."""
    worst = sorted(figures["attainment"].items(), key=lambda item: (item[1]["worstHour"], item[0]))
    OutputTable(("SERVICE", "WITHIN SLO", "WORST HOUR", "PROMISED")).rows(
        (
            name,
            f"{100 * shares['share']:.2f} %",
            f"{100 * shares['worstHour']:.2f} %",
            f"{promised[name]:g} %{' missed' if 100 * shares['worstHour'] < promised[name] else ''}",
        )
        for name, shares in worst
    )
    print()
    held = figures["heldPerHour"]
    costs = {what: figures[f"{name}PerHour"] for name, what in COSTS.items() if f"{name}PerHour" in figures}
    costs |= {
        f"{PEERS[name]}, serves {100 * found['servedShare']:.1f} % on {found['mostGpus']} GPUs": found["perHour"]
        for name, found in figures.get("peers", {}).items()
    }
    OutputTable(("COST", head_amounts("AN HOUR", currency), "HELD / IT")).rows(
        (what, f"{cost:.4f}", _ratio(held, cost)) for what, cost in costs.items()
    )
    print()
    _show_pools(figures.get("pools", {}), currency)
    shown = {"attainment", "accuracy", "peers", "pools", "storms", *(f"{name}PerHour" for name in COSTS)}
    for name, value in figures.items():
        if name not in shown:
            print(f"{name:28} {_counts(value) if isinstance(value, dict) else number(value)}")


def _show_pools(pools: Mapping[str, Mapping[str, float | None]], currency: str) -> None:
    """Prints what the nodes of each pool cost, beside the least that they could have and all of them all the time."""
    if not pools:
        return
    hour = head_amounts("AN HOUR", currency)
    headings = ("POOL", "ORDERS", "GIVEN BACK", "NODE HOURS", "WASTED", hour, "IN HINDSIGHT", "MAX ALL DAY")
    OutputTable(headings).rows(
        (
            name, number(found["orders"]), number(found["givenBack"]), number(found["nodeHours"]),
            f"{number(found['wastedMinutes'])} min", f"{found['perHour']:.4f}",
            "-" if found["hindsightPerHour"] is None else f"{found['hindsightPerHour']:.4f}",
            f"{found['maximumPerHour']:.4f}",
        )
        for name, found in pools.items()
    )  # fmt: skip
    print()


def _counts(figures: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number(count) or '-'}" for name, count in figures.items())


def _ratio(held: float, other: float) -> str:
    return f"{held / other:.3f}" if other else "-"
