"""`gpuwright verify`: check any plan against the files that declare its problem."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli import declared, exits, sources
from cli.arguments import add_file_arguments, completes
from cli.contexts import reason
from cli.exits import Failed
from cli.output import OutputTable, colour, number, plain

if TYPE_CHECKING:
    from solvers.planning.judge import Verdict, Violation
    from solvers.planning.plan import Plan
    from solvers.planning.problem import Problem

SHOWN = 100
EPILOG = """\
Judges every rule, simulates every instance's latency, and adds up the cost; shares no code with `solve`.
Exit code 0 when the plan is right, 1 when it breaks a rule, 2 when the files or the plan cannot be read.

Examples:
  gpuwright solve -f fleet.yaml --json > plan.json
  gpuwright verify -f fleet.yaml plan.json
  gpuwright solve -f fleet.yaml --json | gpuwright verify -f fleet.yaml - --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser)
    completes(parser.add_argument("plan", metavar="PLAN", help="the plan as JSON; - for stdin"), "files")
    parser.add_argument("--json", action="store_true", help="one JSON object: violations, cost, attainment")


def run(args: argparse.Namespace) -> int:
    if args.plan == "-" and "-" in args.files:
        raise Failed("the plan and the files cannot both come from stdin (-)")
    problem = declared.problem(args)
    plan = _plan(args.plan, problem)
    from solvers.planning.judge import judge

    verdict = judge(problem, plan)
    if args.json:
        print(json.dumps(_report(verdict) | {"accuracy": _accuracies(problem, plan)}))
    else:
        _show(verdict)
    return exits.OK if verdict.is_right else exits.NO


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
        mean, _ = mean_accuracy((line for line in plan.instances if line.service == name), problem)
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


def _show(verdict: Verdict) -> None:
    cost = verdict.cost
    _list(colour("broken:", "red"), verdict.violations)
    _list(colour("misstated:", "yellow"), verdict.misstated)
    right = colour("the plan is right", "green") if verdict.is_right else colour("the plan is wrong", "red")
    print(f"{right}: {len(verdict.violations)} broken rules")
    parts = f"GPUs {number(cost.resource)}, unserved {number(cost.unserved)}; jobs {number(cost.job)} apart"
    print(f"cost {number(cost.total)} an hour ({parts})")
    if verdict.attainment:
        worst = sorted(verdict.attainment.items(), key=lambda entry: (entry[1], entry[0]))[:10]
        print("the services nearest to their promise:" if len(verdict.attainment) > len(worst) else "attainment:")
        OutputTable(("SERVICE", "WITHIN SLO")).rows((name, f"{100 * share:.3f} %") for name, share in worst)
