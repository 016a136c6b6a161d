"""`gpuwright bench`: measures this installation, and the plans that it makes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from cli import exits
from cli.arguments import positive, whole
from cli.exits import Failed
from cli.output import OutputTable
from cli.quiet import quiet_stdout

EPILOG = """\
Examples:
  gpuwright bench solve --gpus 1000 --services 300 --seeds 5 --seconds 10 --plot gap.png --json
  gpuwright bench solve -f examples/fleet.yaml --moved 4 --pricing node --blind
  gpuwright bench api --agents 1000 --seconds 60 --json
  gpuwright bench api --agents 1000 --seconds 20 --search --p99-ms 20
  gpuwright bench api --agents 1000 --rate 100 --readers 8 --json

Everything runs on this machine, in processes and folders of its own. Progress goes to stderr; with --json, stdout
holds a single object. docs/benchmarks.md explains what each measures.
"""
# The extras of benchmarks that do not need the solvers extra.
EXTRAS = {"power": "agent", **dict.fromkeys(("cycle", "simulate", "drift", "fallback", "rag"), "planner")}
# By name: the module of cli.bench, and what it measures.
SOLVERS = {
    "solve": ("solve", "plans of whole families, or of files: time to the first, gap over time, memory"),
    "replan": ("replan", "plans after some rates changed: time, and what moved"),
    "cycle": ("cycle", "cycles of the planner: time outside the solver, changes under a steady load"),
    "fallback": (
        "fallback",
        "risen rates without the joint solver: time until what is missing is added",
    ),
    "simulate": ("simulate", "requests a second that the simulation serves, and how a plan fares there"),
    "drift": ("drift", "GPUs that turn slower: time until SLOs hold again, by regions of curves and by one factor"),
    "profiler": ("profiler", "how far the Profiles of campaigns are from the truth of simulated GPUs"),
    "hetsev": ("hetsev", "cost of our plan against HetSev's greedy on the same problem"),
    "growth": ("growth", "how time to a plan grows with the fleet"),
    "family": ("family", "write the problems of a family as manifest files"),
    "place": ("place", "pods of the openb trace onto its nodes, one at a time"),
    "inferno": ("published", "inferno's small fleet, to its published optima"),
    "parvagpu": ("published", "ParvaGPU's scenarios, to their GPU counts"),
    "llm": ("llm", "cost of plans for language models against Melange, one GPU type, and prefill and decode apart"),
    "rag": ("rag", "a service of retrieved passages, planned online, by a static fleet, and by throughput"),
    "accuracy": ("accuracy", "how wrong predictions are on public measurements, out of sample"),
    "sharing": ("sharing", "time of Mudi's decision: the smallest shares of SMs in a cluster"),
    "power": ("power", "the node's power loop against Morak's Algorithm 1 as printed"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    api = what.add_parser("api", help="node reports, decisions, pages", epilog=EPILOG)
    api.add_argument("--agents", metavar="N", type=whole(1, 100_000), default=1000, help="default 1000")
    api.add_argument("--seconds", metavar="S", type=positive, default=60.0, help="default 60")
    api.add_argument("--rate", metavar="R", type=positive, default=500.0, help="reports a second; default 500")
    api.add_argument("--search", action="store_true", help="find the largest rate that keeps --p99-ms")
    api.add_argument("--p99-ms", metavar="MS", type=positive, default=20.0, help="for --search; default 20")
    reads = "measure reports while a viewer reads /slo, /overview and the console over N connections each"
    api.add_argument("--readers", metavar="N", type=whole(1, 1000), help=reads)
    api.add_argument(
        "--services", metavar="N", type=whole(1, 100_000), default=1000, help="services for --readers; default 1000"
    )
    api.add_argument("--pages", action="store_true", help="measure lists and apply of 10,000 services instead")
    _add_json(api)
    for name, (module, about) in SOLVERS.items():
        action = what.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        import_module(f"cli.bench.{module}").add_arguments(action)
        _add_json(action)


def run(args: argparse.Namespace) -> int:
    if args.what in SOLVERS:
        return _plans(args)
    from cli.bench import api, pages

    if args.pages:
        found = pages.measure(say)
    elif args.readers:
        from cli.bench import heavy_reads

        order = api.ApiLoad(args.agents, args.seconds, args.rate)
        found = heavy_reads.measure(order, args.services, args.readers, say)
    elif args.search:
        found = api.search(args.agents, args.seconds, args.p99_ms, say)
    else:
        found = api.measure(api.ApiLoad(args.agents, args.seconds, args.rate), say)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:28} {value}")
    return exits.OK


def _plans(args: argparse.Namespace) -> int:
    module = import_module(f"cli.bench.{SOLVERS[args.what][0]}")
    try:
        with quiet_stdout():
            found: Mapping[str, Any] = module.measure(args, say)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("agents", "app", "benchmarks", "cli", "simulation", "solvers"):
            raise
        extra = EXTRAS.get(args.what, "solvers")
        needs = f"gpuwright bench {args.what} needs the {extra} extra: pip install 'gpuwright[{extra}]'"
        raise Failed(f"{needs} (the module {error.name} is not installed)") from error
    if args.json:
        print(json.dumps(found))
        return exits.OK
    if "rows" in found:
        names = [name for name in module.SHOWN if any(row.get(name) is not None for row in found["rows"])]
        OutputTable([name.upper() for name in names]).rows(_cells(row, names) for row in found["rows"])
    for name, value in found.items():
        if name != "rows":
            print(f"{name}: {json.dumps(value)}")
    return exits.OK


def _cells(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Returns the cells of a row, empty where it has no value of that name."""
    values = ["" if (value := row.get(name)) is None else value for name in names]
    return [f"{value:.6g}" if isinstance(value, float) else str(value) for value in values]


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
