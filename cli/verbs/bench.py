"""`gpuwright bench`: measures this installation, and the plans that it makes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from agents.contract.installs import say_install
from cli import exits
from cli.additions import IS_OF_THE_LAB, additions
from cli.arguments import positive, whole
from cli.bench import Benchmark
from cli.exits import Failed
from cli.output import OutputTable
from cli.quiet import quiet_stdout
from cli.verb_table import OURS

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
OWN = {
    "solve": Benchmark(
        "cli.bench.solve", "plans of whole families, or of files: time to the first, gap over time, memory"
    ),
    "replan": Benchmark("cli.bench.replan", "plans after some rates changed: time, and what moved"),
    "cycle": Benchmark(
        "cli.bench.cycle",
        "cycles of the planner: time outside the solver, changes under a steady load",
        "planner",
    ),
    "simulate": Benchmark(
        "cli.bench.simulate",
        "requests a second that the simulation serves, and how a plan fares there",
        "planner",
    ),
    "savings": Benchmark(
        "cli.bench.savings",
        "what gpuwright saves on simulated fleets, beside Kubernetes' autoscaler, a GPU each and time slices",
        "planner",
    ),
    "pools": Benchmark(
        "cli.bench.pools",
        "what rented nodes cost at equal attainment: by our rule, by Karpenter's, and in hindsight",
        "planner",
    ),
}
# Those of the lab: where it is not installed, their names say how to get it.
OF_THE_LAB = (
    "fallback", "drift", "profiler", "hetsev", "growth", "family", "place", "inferno", "parvagpu", "llm", "rag",
    "accuracy", "risk", "sharing", "power",
)  # fmt: skip
ANY_WORD = "\0"  # as the sign of a flag: then none is a flag


def benchmarks() -> dict[str, Benchmark]:
    """Returns those of plans, and those that other distributions add."""
    added: dict[str, dict[str, Benchmark]] = additions("bench")
    return OWN | {name: benchmark for table in added.values() for name, benchmark in table.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    api = what.add_parser("api", help="node reports, decisions, pages", epilog=EPILOG)
    api.add_argument("--agents", metavar="N", type=whole(1, 100_000), default=1000, help="default 1000")
    api.add_argument("--seconds", metavar="S", type=positive, default=60.0, help="default 60")
    api.add_argument("--rate", metavar="R", type=positive, default=500.0, help="reports a second; default 500")
    api.add_argument("--search", action="store_true", help="find the largest rate that keeps --p99-ms")
    api.add_argument("--p99-ms", metavar="MS", type=positive, default=20.0, help="for --search; default 20")
    api.add_argument("--servers", metavar="N", type=whole(1, 16), default=1, help="that share the agents; default 1")
    api.add_argument("--kill", action="store_true", help="kill one of several servers halfway")
    reads = "measure reports while a viewer reads /slo, /overview and the console over N connections each"
    api.add_argument("--readers", metavar="N", type=whole(1, 1000), help=reads)
    api.add_argument(
        "--services", metavar="N", type=whole(1, 100_000), default=1000, help="services for --readers; default 1000"
    )
    api.add_argument("--pages", action="store_true", help="measure lists and apply of 10,000 services instead")
    _add_json(api)
    known = benchmarks()
    for name, benchmark in known.items():
        about = benchmark.about
        action = what.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        import_module(benchmark.module).add_arguments(action)
        _add_json(action)
    for name in OF_THE_LAB:
        if name not in known:
            action = what.add_parser(name, help="of the lab", prefix_chars=ANY_WORD, add_help=False)
            action.add_argument("words", nargs="*")


def run(args: argparse.Namespace) -> int:
    if args.what != "api":
        return _plans(args)
    from cli.bench import api, pages

    if args.pages:
        found = pages.measure(say)
    elif args.readers:
        from cli.bench import heavy_reads

        order = api.ApiLoad(args.agents, args.seconds, args.rate)
        found = heavy_reads.measure(order, args.services, args.readers, say)
    elif args.search:
        found = api.search(api.ApiLoad(args.agents, args.seconds, args.rate, args.servers), args.p99_ms, say)
    else:
        if args.kill and args.servers < 2:
            raise Failed("--kill needs --servers of at least 2: agents must have somewhere to go", exits.BAD_INPUT)
        found = api.measure(api.ApiLoad(args.agents, args.seconds, args.rate, args.servers, args.kill), say)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:28} {value}")
    return exits.OK


def _plans(args: argparse.Namespace) -> int:
    benchmark = benchmarks().get(args.what)
    if benchmark is None:
        raise Failed(f"gpuwright bench {args.what} {IS_OF_THE_LAB}")
    module = import_module(benchmark.module)
    try:
        with quiet_stdout():
            found: Mapping[str, Any] = module.measure(args, say)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OURS:
            raise
        extra = benchmark.extra
        needs = f"gpuwright bench {args.what} needs the {extra} extra: {say_install(extra)}"
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
