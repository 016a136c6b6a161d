"""`gpuwright simulate`: what a fleet costs and how it serves while the real planner runs it, in virtual time."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from cli import declared, exits
from cli.arguments import add_file_arguments, positive, whole
from cli.exits import Failed
from cli.output import say

if TYPE_CHECKING:
    from simulation.measure.run import SimulationReport

WORK = 24
LOADS = ("moving", "wave", "spike", "steady")
EPILOG = f"""\
The planner, the fast lane, rollouts and the agents' decisions are the real ones, on a Postgres of the run's own; GPUs,
copies and requests are simulated. Every mode counts as auto. Figures count from minute 5 on; what the fleet could cost
is searched at minutes 5, 15, 25 and so on. docs/simulate.md explains each figure.

Searches are bounded by --work, never by seconds: the same input, seed and work give the same JSON on any machine, but
for `seconds` and `requestsPerSecondPerCore`. --work bounds each search of a cycle (default {WORK}); a search for a plan
from scratch takes three times as much.

Examples:
  gpuwright simulate -f examples/fleet.yaml
  gpuwright simulate -f fleet/ --load wave --hours 24 --seed 3 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser)
    parser.add_argument("--load", choices=LOADS, default="moving", help="the load of all services; default moving")
    parser.add_argument("--hours", metavar="H", type=positive, default=1.0, help="of virtual time; default 1")
    parser.add_argument("--seed", metavar="N", type=whole(0), default=0, help="of load and searches; default 0")
    parser.add_argument("--work", metavar="N", type=whole(1), default=WORK, help=f"of each search; default {WORK}")
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    if args.hours * 60 <= 5:
        raise Failed(
            f"--hours {args.hours:g} is too short: figures count from minute 5 on, so more than 1/12 is needed"
        )
    found = _simulate(args)
    if args.json:
        print(json.dumps(found.figures))
    else:
        for name, value in found.figures.items():
            print(f"{name:28} {json.dumps(value)}")
    return exits.OK


def _simulate(args: argparse.Namespace) -> SimulationReport:
    world = declared.world(args)
    from app.postgres.faults import PostgresError
    from solvers.compiled import before_compiling

    before_compiling(lambda: say("compiling the planner's loops, this once: about a minute"))
    from app.control.formulate.problem import build_problem
    from simulation.measure.loads import named_load
    from simulation.measure.run import SimulationOrder, simulate
    from simulation.own_database import own_database

    shapes = named_load(args.load, build_problem(world).services, args.hours, args.seed)
    order = SimulationOrder(world, shapes, args.hours, args.seed, args.work)
    try:
        with _ended_by_signals(), own_database("gpuwright-simulate-", say) as url:
            return simulate(url, order, say)
    except PostgresError as error:
        raise Failed(str(error)) from error


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and a closed terminal end the run as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
