"""`gpuwright verify`: check any plan against the files that declare its problem."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.contract.installs import say_install
from cli import declared, exits, sources
from cli.arguments import add_file_arguments, completes, positive
from cli.currency import name_currency
from cli.exits import Failed
from cli.output import OutputTable, colour, number, plain
from cli.talk.contexts import reason

if TYPE_CHECKING:
    from solvers.crosscheck import CrossCheck
    from solvers.planning.judge import Verdict, Violation
    from solvers.planning.plan import Plan
    from solvers.planning.problem import Problem

SHOWN = 100
EPILOG = """\
Judges every rule, simulates every instance's latency, and adds up the cost; shares no code with `solve`.
With --exact a model of its own, for CP-SAT, proves what the cheapest plan costs; larger fleets are refused by name.
Exit code 0 when the plan is right, 1 when it breaks a rule, 2 when the files or the plan cannot be read.

Examples:
  gpuwright solve -f fleet.yaml --json > plan.json
  gpuwright verify -f fleet.yaml plan.json
  gpuwright solve -f fleet.yaml --json | gpuwright verify -f fleet.yaml - --json
  gpuwright verify -f tiny.yaml plan.json --exact       what the cheapest plan of a small fleet costs, by CP-SAT
"""
EXACT_WORK = 60.0  # deterministic seconds of CP-SAT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser)
    completes(parser.add_argument("plan", metavar="PLAN", help="the plan as JSON; - for stdin"), "files")
    parser.add_argument("--json", action="store_true", help="one JSON object: violations, cost, attainment")
    parser.add_argument(
        "--exact", action="store_true", help="also find the cheapest plan of a small fleet, and how far this one is off"
    )
    parser.add_argument(
        "--exact-work", metavar="N", type=positive, help="with --exact: CP-SAT's deterministic seconds; default 60"
    )


def run(args: argparse.Namespace) -> int:
    if args.plan == "-" and "-" in args.files:
        raise Failed("the plan and the files cannot both come from stdin (-)")
    if args.exact_work and not args.exact:
        raise Failed("--exact-work is for --exact, which is missing")
    problem, currency = declared.problem(args)
    plan = _plan(args.plan, problem)
    from solvers.planning.judge import judge

    found = _cross_checked(problem, args.exact_work or EXACT_WORK) if args.exact else None
    verdict = judge(problem, plan)
    is_below = bool(found and verdict.is_right and found.is_above(verdict.cost.total))
    if args.json:
        exact = {"exact": _exact_report(found, verdict, problem)} if found else {}
        print(json.dumps(_report(verdict) | {"accuracy": _accuracies(problem, plan)} | exact))
    else:
        _show(verdict, currency)
        if found:
            _show_exact(found, verdict, problem, currency)
    return exits.OK if verdict.is_right and not is_below else exits.NO


def _cross_checked(problem: Problem, work: float) -> CrossCheck:
    try:
        from solvers.crosscheck import TooLarge, cross_check
    except ModuleNotFoundError as error:
        if error.name != "ortools":
            raise
        raise Failed(f"verify --exact needs the solvers extra: {say_install('solvers')}") from error
    try:
        return cross_check(problem, work)
    except TooLarge as large:
        raise Failed(f"--exact: {large}") from None


def _exact_report(found: CrossCheck, verdict: Verdict, problem: Problem) -> dict[str, Any]:
    from solvers.crosscheck import left_out

    return {
        "bound": found.bound,
        "cost": found.cost if found.plan else None,
        "isProved": found.is_proved,
        "isBelowBound": verdict.is_right and found.is_above(verdict.cost.total),
        "leftOut": left_out(problem),
        "rounds": found.rounds,
        "work": found.work,
    }


def _show_exact(found: CrossCheck, verdict: Verdict, problem: Problem, currency: str) -> None:
    from solvers.crosscheck import left_out

    least, total = found.bound, verdict.cost.total
    if found.is_proved:
        line = f"exact: the cheapest plan costs {number(found.cost)} an hour, proved by CP-SAT"
    else:
        best = f"; the best that it found costs {number(found.cost)}" if found.plan else ""
        line = f"exact: no plan costs less than {number(least)} an hour by CP-SAT, which ran out of work{best}"
    print(name_currency(line, currency))
    if omitted := left_out(problem):
        print(f"exact: left out, so that it may cost more: {', '.join(omitted)}")
    if verdict.is_right and found.is_above(total):
        print(colour("exact: this plan costs less than that: one of the two is wrong, please report it", "red"))
    elif verdict.is_right:
        more = 100 * max(0.0, total / least - 1) if least > 0 else 0.0
        print(f"exact: this plan costs {more:.3f} % more" if more > 1e-3 else "exact: this plan is as cheap")


def _plan(source: str, problem: Problem) -> Plan:
    from app.manifests import json_text
    from app.manifests.faults import ManifestsRefused
    from app.manifests.limits import OFFLINE
    from app.manifests.reader import decode
    from solvers.planning.wire import WrongPlan, from_json

    data = _bytes(source)
    source = "stdin" if source == "-" else source
    try:
        value, _ = json_text.load(decode(data, source), OFFLINE, source)
    except ManifestsRefused as refused:
        raise declared.refusal(refused, source) from None
    try:
        return from_json(value, problem)
    except WrongPlan as wrong:
        count = len(wrong.faults)
        raise Failed(
            f"{source} is not a valid plan: {count} {'fault' if count == 1 else 'faults'}", particulars=wrong.faults
        ) from None


def _bytes(source: str) -> bytes:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(sources.LIMIT_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(sources.LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Failed(f"cannot read {source}: {reason(error) if isinstance(error, OSError) else error}") from None
    if len(data) > sources.LIMIT_BYTES:
        raise Failed(f"{source} is over {sources.LIMIT_BYTES >> 20} MB")
    return data


def _accuracies(problem: Problem, plan: Plan) -> dict[str, float]:
    """Returns the mean accuracy of each served service's requests."""
    from solvers.planning.judge.measures import mean_accuracy

    found = {}
    for name in problem.services:
        mean = mean_accuracy((line for line in plan.instances if line.service == name), problem)
        if mean is not None:
            found[name] = mean
    return found


def _report(verdict: Verdict) -> dict[str, Any]:
    def each(found: Any) -> list[dict[str, str]]:
        return [
            {"rule": violation.rule, "where": violation.where, "message": violation.sentence} for violation in found
        ]

    return {
        "violations": each(verdict.violations),
        "cost": verdict.cost.total,
        "resourceCost": verdict.cost.resource,
        "unservedCost": verdict.cost.unserved,
        "jobCost": verdict.cost.job,
        "churnCost": verdict.cost.churn,
        "attainment": dict(verdict.attainment),
        "changes": {
            name: getattr(verdict.changes, name) for name in ("keep", "retune", "resize", "start", "stop", "move")
        },
        "misstated": each(verdict.misstated),
    }


def _list(head: str, found: Sequence[Violation]) -> None:
    """Prints equal findings once, with their count."""
    counts = Counter(plain(violation) for violation in found)
    for words, count in list(counts.items())[:SHOWN]:
        print(head, f"{words} ({count} times)" if count > 1 else words)
    if len(counts) > SHOWN:
        print(head, f"{len(counts) - SHOWN} more; --json has them all")


def _show(verdict: Verdict, currency: str) -> None:
    cost = verdict.cost
    _list(colour("broken:", "red"), verdict.violations)
    _list(colour("misstated:", "yellow"), verdict.misstated)
    right = colour("the plan is right", "green") if verdict.is_right else colour("the plan is wrong", "red")
    print(f"{right}: {len(verdict.violations)} broken rules")
    parts = f"GPUs {number(cost.resource)}, unserved {number(cost.unserved)}; jobs {number(cost.job)} apart"
    print(name_currency(f"cost {number(cost.total)} an hour ({parts})", currency))
    if verdict.attainment:
        worst = sorted(verdict.attainment.items(), key=lambda entry: (entry[1], entry[0]))[:10]
        print("the services nearest to their promise:" if len(verdict.attainment) > len(worst) else "attainment:")
        OutputTable(("SERVICE", "WITHIN SLO")).rows((name, f"{100 * share:.3f} %") for name, share in worst)
