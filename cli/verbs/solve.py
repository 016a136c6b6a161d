"""`gpuwright solve`: the plan for what files declare, without server or database, with its proof and its reasons."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli import declared, exits
from cli.arguments import add_file_arguments, completes, not_negative, whole
from cli.currency import name_currency
from cli.exits import Failed
from cli.output import OutputTable, number, plain, say
from cli.planner_argument import add_any_planner_argument
from cli.quiet import quiet_stdout
from cli.talk.contexts import reason
from solvers.planners.names import JOINT
from solvers.planning.certificate_wire import certificate_out
from solvers.planning.plan_fields import spell_gap, spell_shortfall

if TYPE_CHECKING:
    from solvers.planning.plan import Certificate, Plan
    from solvers.planning.problem import Instance, Problem
    from solvers.planning.solve import Progress, SearchStatus, SolveBudget

SECONDS = 10.0
SERVICES_SHOWN = 50
UNSERVED_SHOWN = 20
EPILOG = """\
Exit code 0 when everything is served, 3 when something is left unserved (the plan says why), 2 for bad input.
With --work and no --seconds the same input, seed and work give the same plan on any machine.

Examples:
  gpuwright solve -f examples/quickstart.yaml
  gpuwright solve -f fleet/ --seconds 60 --json > plan.json
  gpuwright solve -f fleet/ --work 4000 --seed 7 -o plan.json
  gpuwright solve -f examples/fleet.yaml --planner hetsev
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser)
    parser.add_argument(
        "--seconds", type=not_negative, metavar="S", help=f"time to spend; default {SECONDS:g}, none with --work"
    )
    parser.add_argument("--work", type=whole(0), metavar="N", help="deterministic steps to spend")
    parser.add_argument("--seed", type=whole(0), metavar="N", default=0, help="seed of the search; default 0")
    add_any_planner_argument(parser)
    parser.add_argument("--json", action="store_true", help="the plan as one JSON object on stdout")
    completes(
        parser.add_argument("-o", "--output", metavar="FILE", help="also write the plan as JSON to this file"), "files"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="a line on stderr for each better plan")


def run(args: argparse.Namespace) -> int:
    problem, currency = declared.problem_to_plan(args)
    gc.disable()  # what is imported and declared is no garbage, now or later
    from solvers.compiled import call_before_compiling

    call_before_compiling(lambda: say("compiling the planner's loops, this once: about a minute"))
    from solvers.planners.portfolio import ask_others
    from solvers.planning.solve import SolveBudget, solve  # its loops are read from disk, or compiled, when imported
    from solvers.planning.wire import to_json

    gc.freeze()
    gc.enable()
    seconds = args.seconds if args.seconds is not None or args.work is not None else SECONDS
    budget = SolveBudget(seconds=seconds, work=args.work, seed=args.seed)
    planner = args.planner or problem.policy.planner
    with quiet_stdout():
        if planner == JOINT:
            plan = solve(problem, budget, _progress(args.verbose, currency), ask_others)
        else:
            plan = _plan_of(planner, problem, budget)
    if args.json or args.output:
        text = json.dumps(to_json(plan, problem))
        if args.output:
            _write(args.output, text)
        if args.json:
            print(text)
    if not args.json:
        _show(plan, problem, currency)
    return exits.UNSERVED if plan.unserved else exits.OK


def _plan_of(planner: str, problem: Problem, budget: SolveBudget) -> Plan:
    """Returns the plan of another planner; Failed where it breaks a rule."""
    from solvers.planners.ask import PlanRefused, find_plan
    from solvers.planning.shortfalls import add_shortfalls

    try:
        return add_shortfalls(problem, find_plan(problem, planner, budget).plan, budget)
    except PlanRefused as refused:
        raise Failed(str(refused), exits.REFUSED) from None


def _progress(verbose: bool, currency: str) -> Progress | None:
    """Reports each better plan or bound: on one line of a terminal, or on a line each if requested."""
    terminal = sys.stderr.isatty()
    if not terminal and not verbose:
        return None

    def tell(status: SearchStatus) -> None:
        known = "no bound yet" if status.bound is None else f"bound {status.bound:,.6g}"
        cost = name_currency(f"cost {status.cost:,.6g} an hour", currency)
        line = f"{status.seconds:6.1f} s   {cost}, {known}   {status.method}"
        if verbose:
            say(line)
        else:
            print(f"\r{plain(line)}\x1b[K", end="", file=sys.stderr, flush=True)

    return tell


def _worth(certificate: Certificate, problem: Problem) -> str:
    cost, weight = certificate.cost, problem.policy.money_weight
    parts = [f"GPUs {number(cost.resource)}"]
    parts += [f"unserved {number(cost.unserved)}"] if cost.unserved else []
    apart = [f"jobs {number(cost.job)}"] if cost.job else []
    apart += [f"churn {number(cost.churn)}"] if cost.churn else []
    besides = f"; not included: {' and '.join(apart)}" if apart else ""
    bound = "no bound known" if certificate.bound is None else f"at least {number(certificate.bound)} by proof"
    gap = "" if certificate.gap is None else f", gap {100 * certificate.gap:.2f} %"
    if gap and cost.unserved and certificate.bound is not None:
        gap += f" of the {number(certificate.bound - cost.unserved)} for GPUs alone"
    gap += spell_gap(cost.total, certificate.bound, certificate.programme)
    weighed = "" if weight == 1 else f", as the objective weighs it: money x {weight:g}"
    return f"cost {number(cost.total)} an hour{weighed} ({', '.join(parts)}{besides}); {bound}{gap}"


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text + "\n")
    except OSError as error:
        raise Failed(f"cannot write {file}: {reason(error)}", exits.INTERNAL) from None


def _show(plan: Plan, problem: Problem, currency: str) -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    instances: dict[str, list[Instance]] = {name: [] for name in problem.services}
    for instance in plan.instances:
        instances[instance.service].append(instance)
    OutputTable(("SERVICE", "INSTANCES", "SERVED/S", "ASKED/S", "GPU TYPES")).rows(
        (
            name, len(mine), number(sum(instance.rate_per_second for instance in mine)),
            number(problem.services[name].rate_per_second),
            ", ".join(sorted({problem.nodes[instance.node].gpu_type for instance in mine})),
        )
        for name, mine in sorted(instances.items())[:SERVICES_SHOWN]
    )  # fmt: skip
    if len(instances) > SERVICES_SHOWN:
        print(f"and {len(instances) - SERVICES_SHOWN} more services; --json has them all")
    _show_left_out(plan, currency)
    if plan.certificate:
        certificate = plan.certificate
        for shortfall in certificate_out(certificate)["shortfalls"]:
            print(spell_shortfall(shortfall))
        print(name_currency(_worth(certificate, problem), currency))
        print(plain(f"by {certificate.method}; {certificate.work} steps in {certificate.seconds:.2f} s"))
    if problem.state is not None:
        counts = ("keep", "retune", "resize", "start", "stop", "move")
        print("changes:", ", ".join(f"{getattr(plan.changes, name)} {name}" for name in counts))


def _show_left_out(plan: Plan, currency: str) -> None:
    for entry in sorted(plan.unserved, key=lambda unserved: not unserved.relaxation)[
        :UNSERVED_SHOWN
    ]:  # explained first
        print(plain(f"unserved: {entry.service}: {number(entry.rate_per_second)} a second: {_why(entry)}"))
    if len(plan.unserved) > UNSERVED_SHOWN:
        print(f"unserved: {len(plan.unserved) - UNSERVED_SHOWN} more services; --json has them all")
    for out in plan.unplaced[:UNSERVED_SHOWN]:
        print(plain(f"unplaced: {out.job}: {_why(out)}"))
    for warning in plan.warnings[:UNSERVED_SHOWN]:
        print(plain(f"warning: {warning}"))
    if plan.releasable:
        saved = sum(entry.price_per_hour for entry in plan.releasable)
        print(name_currency(f"releasable: {len(plan.releasable)} nodes, {number(saved)} an hour", currency))


def _why(entry: Any) -> str:
    change = f"least change: {entry.relaxation}" if entry.relaxation else ""
    return "; ".join(part for part in (entry.reason, change) if part) or "no reason given"
